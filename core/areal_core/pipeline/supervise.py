"""What happens when a worker is lost: it is noticed, told, and another one takes its seat."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from attrs import frozen

from areal_core.errors import ArealError, WorkerLost
from areal_core.pipeline.background import Background, together
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.health import HUNG, Checkup, End, manner
from areal_core.pipeline.pool import Pool, Seat
from areal_core.protocols import Executor, Worker
from areal_core.spec.model import SupervisionSpec
from areal_core.workers.group import WorkerGroup

GRACE = 10.0
"""Seconds that a worker gets to end by itself."""

LONGEST_WAIT = 60.0
"""Seconds between two restarts of a worker, at most."""

Bring = Callable[[Seat], Awaitable[None]]
"""Makes a worker that has just started fit to serve, and its seat `ready`.

Raises TimeoutError where the worker takes longer than `start_timeout`; what it has to wait for is not its fault.
"""

Told = Callable[[str, str], None]
"""Called with a lost worker's name and the reason."""


@frozen
class Persistence:
    """How often a worker is started again: at once, then after `backoff` seconds, doubled each time.

    `max_restarts` in a row are too many; a worker that served for `forgive_after` seconds begins a new row.
    One that takes longer than `start_timeout` seconds to be set up, or to take in its weights, has failed.
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
        """Start a worker for each seat, all at the same time; they are not ready yet, and some may be lost."""
        await together([self._begin(seat) for seat in seats])

    async def settle(self, pool: Pool, seat: Seat, bring: Bring) -> None:
        """Let the worker that was started for `seat` serve, or whoever takes its place, and `keep` it.

        A worker that is lost is started again; what one raises is wrong from the beginning, and raised.
        """
        try:
            if seat.held is None:
                raise WorkerLost(seat.name, seat.fault)
            await self._serve(seat, bring)
        except WorkerLost as error:
            self._end(seat)
            self.mourn(seat.name, error.reason)
            await self._replace(pool, seat, bring, error.reason)
        if seat in pool.seats:
            self.keep(pool, seat, bring)

    async def insist(self, worker: str, attempt: Callable[[], Awaitable[None]]) -> None:
        """Make an attempt to have `worker` serve, and another one whenever it is lost in that."""
        restarts = 0
        while True:
            try:
                await attempt()
            except WorkerLost as error:
                self.mourn(worker, error.reason)
                if restarts >= self._persistence.max_restarts:
                    raise _often(worker, error.reason, restarts) from error
            else:
                break
            restarts += 1
            await asyncio.sleep(self._persistence.wait(restarts))
        if restarts:
            self._welcome(worker, restarts)

    async def take_in(self, pool: Pool, seat: Seat, bring: Bring) -> None:
        """Start a worker for one more seat and let it serve; raises where it cannot, with nothing left of it."""
        try:
            await self._start(seat, bring)
        except BaseException:
            self._end(seat)
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

    async def attend(self, group: WorkerGroup) -> str:
        """Ask the ranks how they are until one is lost; the reason."""
        return await self._attend(group.ranks, group.end, group.lost())

    async def _begin(self, seat: Seat) -> None:
        try:
            await self._hire(seat)
        except WorkerLost as error:
            seat.held, seat.fault = None, error.reason

    async def _hire(self, seat: Seat) -> None:
        seat.held, seat.fault = await self._executor.start(seat.spec), ""

    async def _serve(self, seat: Seat, bring: Bring) -> None:
        try:
            await bring(seat)
        except TimeoutError:
            reason = f"{HUNG} it did not serve within {self._persistence.start_timeout:g} s"
            raise WorkerLost(seat.name, reason) from None

    async def _start(self, seat: Seat, bring: Bring) -> None:
        await self._hire(seat)
        await self._serve(seat, bring)

    def _end(self, seat: Seat) -> None:
        seat.ready = False
        if seat.held is not None:
            seat.held.kill()

    async def _keep(self, pool: Pool, seat: Seat, bring: Bring) -> None:
        clock = asyncio.get_running_loop().time
        while seat in pool.seats:
            since = clock()
            killed = await self._attend([seat.worker], seat.end, seat.worker.lost())
            seat.ready, reason = False, seat.fault or killed
            if clock() - since >= self._persistence.forgive_after or _excused(seat, reason):
                seat.restarts = 0
            self.mourn(seat.name, reason)
            if seat in pool.seats:
                await self._replace(pool, seat, bring, reason)

    async def _attend(self, workers: Iterable[Worker], end: End, lost: Awaitable[str]) -> str:
        """Ask the workers how they are until one is `lost`; the reason."""
        checkup = self._checkup
        asking = [self._background.spawn(checkup.attend(worker, end)) for worker in workers] if checkup else []
        try:
            return await lost
        finally:
            for task in asking:
                task.cancel()

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
            except (ArealError, OSError) as error:  # one of this machine, too: no more processes, or open files
                reason = f"{loss}; it did not come back: {error}"
                self._end(seat)
                self._lost(seat.name, reason)
        self._welcome(seat.name, seat.restarts)
        self._condition.changed()

    def _give_up(self, pool: Pool, seat: Seat, reason: str) -> None:
        error = _often(seat.name, reason, seat.restarts)
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

    def _welcome(self, worker: str, restarts: int) -> None:
        self._events.add("worker-restarted", f"{worker} is back", worker=worker, restarts=restarts)

    def _lost(self, worker: str, reason: str) -> None:
        how = manner(reason)
        self._events.add("worker-lost", f"{worker}: {reason}", "error", worker=worker, reason=reason, how=how)


def _often(worker: str, reason: str, restarts: int) -> WorkerLost:
    return WorkerLost(worker, f"{reason}; it was restarted {restarts} times before")


def _excused(seat: Seat, reason: str) -> bool:
    """A rollout worker is hung by what it plays: the groups answer for that, of which so many may fail."""
    return seat.spec.role == "rollout" and manner(reason) == "hung"
