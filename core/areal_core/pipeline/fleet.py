"""The workers of a run: who is there, how loaded each one is, and what happens when one is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define

from areal_core.contexts import WorkerSpec
from areal_core.errors import ArealError, WorkerLost
from areal_core.pipeline.background import Background
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.protocols import Executor, Worker
from areal_core.workers.group import WorkerGroup

GRACE = 10.0
"""Seconds that a worker gets to end by itself."""

Bring = Callable[["Seat"], Awaitable[None]]
"""Makes a worker that has just started fit to serve, and its seat `ready`."""

Required = Worker | WorkerGroup

Told = Callable[[str, str], None]
"""Called with a lost worker's name and the reason."""


@define(eq=False)
class Seat:
    """A place for one worker: who holds it now, the trajectories it works on, and how often it was replaced.

    `fault` is why its worker was ended from here.
    """

    spec: WorkerSpec
    held: Worker | None = None
    ready: bool = False
    load: int = 0
    restarts: int = 0
    fault: str = ""

    @property
    def worker(self) -> Worker:
        assert self.held is not None
        return self.held

    @property
    def name(self) -> str:
        return self.spec.name

    def lose(self, worker: Worker) -> None:
        """Give `worker` no more work: it is gone, though its end may not have been noticed yet."""
        if self.held is worker:
            self.ready = False

    def end(self, worker: Worker, fault: str) -> None:
        """Kill `worker`, which is there but cannot serve any more: it counts as lost, because of `fault`."""
        if self.held is worker:
            self.ready, self.fault = False, fault
        worker.kill()

    @contextmanager
    def carrying(self, load: int) -> Iterator[Worker]:
        """Count `load` trajectories while the block runs."""
        self.load += load
        try:
            yield self.worker
        finally:
            self.load -= load


class Pool:
    """Seats of one kind; work goes to the lightest that is ready, the first of equals."""

    def __init__(self, specs: Sequence[WorkerSpec], condition: Condition) -> None:
        self.seats = [Seat(spec) for spec in specs]
        self._condition = condition

    @property
    def ready(self) -> list[Seat]:
        """Those that serve."""
        return [seat for seat in self.seats if seat.ready]

    def lightest(self) -> Seat:
        """Where the next work goes; raises `ValueError` when none is ready."""
        return min(self.ready, key=lambda seat: seat.load)

    async def ask(self, method: str, *args: Any) -> Any:
        """What any of them answers; one that is lost meanwhile is not the last that is asked."""
        while True:
            await self._condition.until(lambda: bool(self.ready))
            seat = self.lightest()
            worker = seat.worker
            try:
                return await worker.call(method, *args)
            except WorkerLost:
                seat.lose(worker)


class Supervisor:
    """Starts workers, notices at once when one is lost, and puts another in its seat."""

    def __init__(
        self,
        executor: Executor,
        background: Background,
        condition: Condition,
        events: Events,
        told: Told,
        max_restarts: int,
    ) -> None:
        self._executor, self._background = executor, background
        self._condition, self._events, self._told = condition, events, told
        self._max_restarts = max_restarts
        self._watches: dict[Seat, asyncio.Task[None]] = {}

    async def start(self, seats: Sequence[Seat]) -> None:
        """Start a worker for each seat, all at the same time; they are not ready yet."""
        await together([self._hire(seat) for seat in seats])

    def require(self, worker: Required) -> None:
        """Watch a worker or group that cannot be replaced: losing it stops the run."""
        self._background.spawn(self._require(worker))

    def keep(self, seat: Seat, bring: Bring) -> None:
        """Watch a worker and replace it when it is lost, `max_restarts` times."""
        self._watches[seat] = self._background.spawn(self._keep(seat, bring))

    async def dismiss(self, seats: Sequence[Seat]) -> None:
        """End the workers in these seats, which is no loss."""
        for seat in seats:
            seat.ready = False
            self._watches.pop(seat).cancel()
            await seat.worker.stop(GRACE)

    async def _hire(self, seat: Seat) -> None:
        seat.held, seat.fault = await self._executor.start(seat.spec), ""

    async def _require(self, worker: Required) -> None:
        reason = await worker.lost()
        self._mourn(worker.name, reason)
        raise WorkerLost(worker.name, reason)

    async def _keep(self, seat: Seat, bring: Bring) -> None:
        while True:
            killed = await seat.worker.lost()
            seat.ready, reason = False, seat.fault or killed
            self._mourn(seat.name, reason)
            await self._replace(seat, bring, reason)

    async def _replace(self, seat: Seat, bring: Bring, loss: str) -> None:
        """Try until another one serves; a start that fails is a restart that is used up."""
        reason = loss
        while not seat.ready:
            if seat.restarts >= self._max_restarts:
                raise WorkerLost(seat.name, f"{reason}; it was restarted {seat.restarts} times before")
            seat.restarts += 1
            try:
                await self._hire(seat)
                await bring(seat)
            except ArealError as error:
                reason = f"{loss}; it did not come back: {error}"
                self._events.add("worker-lost", f"{seat.name}: {reason}", "error", worker=seat.name, reason=reason)
                if seat.held is not None:
                    seat.held.kill()
        self._events.add("worker-restarted", f"{seat.name} is back", worker=seat.name, restarts=seat.restarts)
        self._condition.changed()

    def _mourn(self, worker: str, reason: str) -> None:
        self._events.add("worker-lost", f"{worker}: {reason}", "error", worker=worker, reason=reason)
        self._told(worker, reason)
        self._condition.changed()


async def together(work: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of all; the first error ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
