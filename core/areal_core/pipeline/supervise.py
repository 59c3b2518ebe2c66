"""What happens when a worker is lost: it is noticed, told, and another one takes its seat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen

from areal_core.errors import ArealError, WorkerLost
from areal_core.pipeline.background import Background, together
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.pool import Seat
from areal_core.protocols import Executor
from areal_core.spec.model import SupervisionSpec

GRACE = 10.0
"""Seconds that a worker gets to end by itself."""

LONGEST_WAIT = 60.0
"""Seconds between two restarts of a worker, at most."""

Bring = Callable[[Seat], Awaitable[None]]
"""Makes a worker that has just started fit to serve, and its seat `ready`."""

Told = Callable[[str, str], None]
"""Called with a lost worker's name and the reason."""


@frozen
class Persistence:
    """How often a worker is started again: at once, then after `backoff` seconds, doubled each time.

    `max_restarts` in a row are too many; a worker that served for `forgive_after` seconds begins a new row.
    """

    max_restarts: int = 3
    backoff: float = 1.0
    forgive_after: float = 300.0

    def wait(self, restart: int) -> float:
        """Seconds before the n-th restart in a row, counted from 1."""
        return 0.0 if restart < 2 else min(LONGEST_WAIT, self.backoff * 2.0 ** (restart - 2))


def persistence(supervision: SupervisionSpec) -> Persistence:
    """As the spec has it."""
    return Persistence(supervision.max_restarts, supervision.restart_backoff, supervision.forgive_after)


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

    async def _keep(self, seat: Seat, bring: Bring) -> None:
        while True:
            killed = await seat.worker.lost()
            seat.ready, reason = False, seat.fault or killed
            self.mourn(seat.name, reason)
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

    def mourn(self, worker: str, reason: str) -> None:
        """Tell everyone that a worker is lost."""
        how = "hung" if reason.startswith("hung:") else "dead"
        self._events.add("worker-lost", f"{worker}: {reason}", "error", worker=worker, reason=reason, how=how)
        self._told(worker, reason)
        self._condition.changed()
