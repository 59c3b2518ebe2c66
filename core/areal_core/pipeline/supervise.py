"""What happens when a worker is lost: it is noticed, told, and another one takes its seat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen

from areal_core.errors import ArealError, WorkerLost
from areal_core.pipeline.background import Background, together
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.health import HUNG, Checkup, manner
from areal_core.pipeline.pool import Pool, Seat
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
    One that does not serve within `start_timeout` seconds has failed.
    """

    max_restarts: int = 3
    backoff: float = 1.0
    forgive_after: float = 300.0
    start_timeout: float = 1800.0

    def wait(self, restart: int) -> float:
        """Seconds before the n-th restart in a row, counted from 1."""
        return 0.0 if restart < 2 else min(LONGEST_WAIT, self.backoff * 2.0 ** (restart - 2))


def persistence(spec: SupervisionSpec) -> Persistence:
    """As the spec says."""
    return Persistence(spec.max_restarts, spec.restart_backoff, spec.forgive_after, spec.start_timeout)


def checkup(spec: SupervisionSpec, events: Events, debug: bool) -> Checkup | None:
    """As the spec says; none in debug mode, where no worker has a process of its own."""
    return None if debug else Checkup(events, spec.health_every, spec.heartbeat_timeout)


class Supervisor:
    """Starts workers, notices at once when one is lost, and puts another in its seat."""

    def __init__(
        self,
        executor: Executor,
        background: Background,
        condition: Condition,
        events: Events,
        told: Told,
        persistence: Persistence,
        checkup: Checkup | None = None,
    ) -> None:
        """`checkup` asks those that serve how they are; None: nobody does."""
        self._executor, self._background = executor, background
        self._condition, self._events, self._told = condition, events, told
        self._persistence, self._checkup = persistence, checkup
        self._watches: dict[Seat, asyncio.Task[None]] = {}

    async def start(self, seats: Sequence[Seat]) -> None:
        """Start a worker for each seat, all at the same time; they are not ready yet."""
        await together([self._hire(seat) for seat in seats])

    async def settle(self, seat: Seat, bring: Bring) -> None:
        """Make a worker that was started serve; raises `WorkerLost` where that takes too long."""
        limit = self._persistence.start_timeout
        try:
            async with asyncio.timeout(limit):
                await bring(seat)
        except TimeoutError:
            raise WorkerLost(seat.name, f"{HUNG} it did not serve within {limit:g} s") from None

    async def take_in(self, pool: Pool, seat: Seat, bring: Bring) -> None:
        """Start a worker for one more seat and let it serve; raises where it cannot, with nothing left of it."""
        try:
            await self._start(seat, bring)
        except BaseException:
            if seat.held is not None:
                seat.held.kill()
            raise
        pool.add(seat)
        self.keep(pool, seat, bring)
        self._condition.changed()

    def keep(self, pool: Pool, seat: Seat, bring: Bring) -> None:
        """Watch a worker that serves in `pool`, and replace it when it is lost.

        Once it is restarted too often it is given up, and the others go on without it; the last one's loss,
        or the loss of one that they cannot do without, stops the run.
        """
        self._watches[seat] = self._background.spawn(self._keep(pool, seat, bring))

    async def dismiss(self, seats: Sequence[Seat]) -> None:
        """End the workers in these seats, which is no loss."""
        for seat in seats:
            seat.ready = False
            self._watches.pop(seat).cancel()
            await seat.worker.stop(GRACE)

    async def _hire(self, seat: Seat) -> None:
        seat.held, seat.fault = await self._executor.start(seat.spec), ""

    async def _start(self, seat: Seat, bring: Bring) -> None:
        await self._hire(seat)
        await self.settle(seat, bring)

    async def _keep(self, pool: Pool, seat: Seat, bring: Bring) -> None:
        clock = asyncio.get_running_loop().time
        while seat in pool.seats:
            since = clock()
            killed = await self._attend(seat)
            seat.ready, reason = False, seat.fault or killed
            if clock() - since >= self._persistence.forgive_after or _excused(seat, reason):
                seat.restarts = 0
            self.mourn(seat.name, reason)
            if seat in pool.seats:
                await self._replace(pool, seat, bring, reason)

    async def _attend(self, seat: Seat) -> str:
        """Ask the worker how it is until it is lost; the reason."""
        asking = None if self._checkup is None else self._background.spawn(self._checkup.attend(seat))
        try:
            return await seat.worker.lost()
        finally:
            if asking is not None:
                asking.cancel()

    async def _replace(self, pool: Pool, seat: Seat, bring: Bring, loss: str) -> None:
        """Try until another one serves; a start that fails is a restart that is used up."""
        reason = loss
        while not seat.ready:
            if seat.restarts >= self._persistence.max_restarts:
                self._give_up(pool, seat, reason)
                return
            seat.restarts += 1
            await asyncio.sleep(self._persistence.wait(seat.restarts))
            try:
                await self._start(seat, bring)
            except ArealError as error:
                seat.ready = False
                reason = f"{loss}; it did not come back: {error}"
                self._lost(seat.name, reason)
                if seat.held is not None:
                    seat.held.kill()
        self._events.add("worker-restarted", f"{seat.name} is back", worker=seat.name, restarts=seat.restarts)
        self._condition.changed()

    def _give_up(self, pool: Pool, seat: Seat, reason: str) -> None:
        error = WorkerLost(seat.name, f"{reason}; it was restarted {seat.restarts} times before")
        if pool.whole or pool.seats == [seat]:
            raise error
        pool.remove(seat)
        others = len(pool.seats)
        text = f"{error}; the run goes on with the other {others}"
        self._events.add("worker-given-up", text, "error", worker=seat.name, reason=reason, others=others)
        self._condition.changed()

    def mourn(self, worker: str, reason: str) -> None:
        """Tell everyone that a worker is lost."""
        self._lost(worker, reason)
        self._told(worker, reason)
        self._condition.changed()

    def _lost(self, worker: str, reason: str) -> None:
        how = manner(reason)
        self._events.add("worker-lost", f"{worker}: {reason}", "error", worker=worker, reason=reason, how=how)


def _excused(seat: Seat, reason: str) -> bool:
    """A rollout worker is hung by what it plays: the groups answer for that, of which so many may fail."""
    return seat.spec.role == "rollout" and manner(reason) == "hung"
