"""Has one group rolled out: which worker and engine, and what to do when it fails."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import cast

from attrs import define, evolve, frozen

from areal_core.errors import ArealError, RemoteError, WorkerLost
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events, Level
from areal_core.pipeline.health import HUNG, manner
from areal_core.pipeline.hedge import Desk, Hedges, choose
from areal_core.pipeline.pace import Pace
from areal_core.pipeline.pool import Pool, Seat
from areal_core.protocols import Worker
from areal_core.spec.model import SupervisionSpec
from areal_core.workers.plans import GroupOrder, GroupResult

WINDOW = 50
"""The recent groups among which the failed are counted."""

_NOBODYS_FAULT = ("WorkerLost", "GenerationAborted")


class GroupFailed(Exception):
    """A group failed for good; `fatal`: the run must not go on, because of `cause`."""

    def __init__(self, cause: ArealError, fatal: ArealError | None) -> None:
        super().__init__(cause, fatal)
        self.cause, self.fatal = cause, fatal


class TooManyFailed(ArealError):
    """More of the recent groups failed than the spec allows; `last` is the latest failure."""

    def __init__(self, failed: int, last: ArealError) -> None:
        super().__init__(failed, last)
        self.failed, self.last = failed, last

    def __str__(self) -> str:
        return f"{self.failed} of the last {WINDOW} groups failed, more than supervision.max_failed_share: {self.last}"


class RolloutHung(WorkerLost):
    """A rollout worker was there but did not answer: one of the groups it had may be why."""


@frozen
class Patience:
    """`retries` of a group whose rollout raises, or hangs its worker; `losses` of workers that it survives.

    `max_failed_share` of the recent groups may fail. A group that is not back `grace` seconds after its own
    time-out hangs its rollout worker, and one that is not back `grace` seconds after the loss of its engine is
    taken back. What is a straggler: see `Pace`.
    """

    retries: int
    losses: int
    max_failed_share: float
    grace: float = 60.0
    straggler_factor: float | None = None
    straggler_floor: float = 30.0


def patience(spec: SupervisionSpec, debug: bool) -> Patience:
    """As the spec says; in debug mode nothing depends on how long anything took."""
    return Patience(
        retries=spec.task_retries,
        losses=spec.max_restarts + spec.task_retries,
        max_failed_share=spec.max_failed_share,
        grace=spec.heartbeat_timeout,
        straggler_factor=None if debug else spec.straggler_factor,
        straggler_floor=spec.straggler_floor,
    )


@define
class _Toll:
    """What a group has cost so far; `hangs` are the losses of rollout workers that hung with it."""

    failures: int = 0
    losses: int = 0
    hangs: int = 0

    def add(self, error: RemoteError | WorkerLost) -> bool:
        """One more; whether it was a loss."""
        lost = _is_loss(error)
        self.failures += not lost
        self.losses += lost
        self.hangs += isinstance(error, RolloutHung)
        return lost

    def charge(self, error: RemoteError | WorkerLost) -> RemoteError | WorkerLost:
        """The error that the group fails with."""
        if not isinstance(error, RolloutHung):
            return error
        suspicion = f"{self.hangs} workers hung with this group: its environment or its reward may block"
        return RolloutHung(error.worker, f"{error.reason}; {suspicion}")

    def exceeds(self, patience: Patience) -> bool:
        """Whether that is enough."""
        return max(self.failures, self.hangs) > patience.retries or self.losses > patience.losses


class Dispatcher:
    """Sends orders to the lightest rollout worker, against the lightest engine, while `swapping` is False.

    A rollout worker that hangs may have been hung by any of the groups it had: from the second time on
    they are tried one at a time, so that the one at fault soon fails alone.
    """

    def __init__(
        self,
        engines: Pool,
        rollouts: Pool,
        swapping: Callable[[], bool],
        condition: Condition,
        events: Events,
        patience: Patience,
        recent: Iterable[bool] = (),
    ) -> None:
        """`recent`: which of the last groups failed, of a run that goes on."""
        self._engines, self._rollouts, self._swapping = engines, rollouts, swapping
        self._condition, self._events, self._patience = condition, events, patience
        self._recent: deque[bool] = deque(recent, maxlen=WINDOW)
        self._alone = asyncio.Lock()
        pace = Pace(patience.straggler_factor, patience.straggler_floor)
        self._hedges = Hedges(engines, rollouts, pace, self._send, self.can, condition, events)

    @property
    def recent(self) -> tuple[bool, ...]:
        """Which of the last groups failed."""
        return tuple(self._recent)

    def can(self, mode: str = "generate") -> bool:
        """Whether an order would be sent at once."""
        if not self._rollouts.serves:
            return False
        return mode != "generate" or (self._engines.serves and not self._swapping())

    async def run(
        self,
        order: GroupOrder,
        again: Callable[[], None] = lambda: None,
        awaited: Callable[[], bool] = lambda: True,
    ) -> GroupResult:
        """The group, scored. `again` is called before the whole group is rolled out another time, from nothing.

        `awaited` says whether somebody waits for it: only then it is rolled out a second time when it is late.

        Raises:
            GroupFailed: it was tried often enough.

        """
        toll, desk = _Toll(), None
        while True:
            async with self._alone if toll.hangs > 1 else nullcontext():
                await self._condition.until(lambda: self.can(order.mode))
                if desk is not None:
                    again()
                sent = order if desk is None else evolve(order, begun=None)
                desk = self._desk(order, desk)
                try:
                    result = await self._hedges.race(sent, desk, awaited)
                except (RemoteError, WorkerLost) as error:
                    _heed_cancellation()
                    lost = toll.add(error)
                    if toll.exceeds(self._patience) or _is_input(error):
                        raise self._failed(order, toll.charge(error)) from error
                    self._report("group-retried", order, error, "info" if lost else "warning")
                else:
                    self._recent.append(False)
                    return result

    def _desk(self, order: GroupOrder, before: Desk | None) -> Desk:
        """Who takes the order: others than `before`, if there are."""
        host, engine = (before.host, before.engine) if before else (None, None)
        return Desk(choose(self._rollouts, host), choose(self._engines, engine) if order.mode == "generate" else None)

    async def _send(self, order: GroupOrder, desk: Desk) -> GroupResult:
        seat = desk.engine
        if seat is None:
            return await self._roll_out(order, desk.host)
        engine = seat.worker
        try:
            return await self._lend(seat, evolve(order, engine=engine.address), desk.host)
        except RemoteError as error:
            if _is_input(error) or await _serves(seat, engine) or _is_loss(error):
                raise
            raise WorkerLost(seat.name, error.error.text) from error

    async def _lend(self, seat: Seat, order: GroupOrder, host: Seat) -> GroupResult:
        """Roll out against the engine in `seat`; the group is taken back from one that was lost `grace` seconds ago.

        The connections of a machine that is gone stay open: its rollout workers would wait for the group's time-out.
        Until then those that do notice say so themselves, and a group that only waits for its verdict comes back.
        """
        engine, loop = seat.worker, asyncio.get_running_loop()

        async def recall() -> str:
            reason = await engine.lost()
            lent.reschedule(loop.time() + self._patience.grace)
            return reason

        try:
            async with asyncio.timeout(None) as lent:
                lost = asyncio.ensure_future(recall())
                try:
                    return await self._roll_out(order, host)
                finally:
                    lost.cancel()
        except TimeoutError:
            raise WorkerLost(seat.name, lost.result()) from None

    async def _roll_out(self, order: GroupOrder, host: Seat) -> GroupResult:
        limit = None if order.timeout is None else order.timeout + self._patience.grace
        worker = host.worker
        try:
            return cast(GroupResult, await worker.call("run_group", order, timeout=limit))
        except WorkerLost as error:
            reason = host.fault if host.held is worker and host.fault else error.reason
            host.lose(worker)
            raise (RolloutHung if manner(reason) == "hung" else WorkerLost)(host.name, reason) from error
        except TimeoutError:
            cause = f"{order.task} was not back {self._patience.grace:g} s after its time-out of {order.timeout:g} s"
            host.end(worker, f"{HUNG} {cause}")
            raise RolloutHung(host.name, f"{HUNG} {cause}") from None

    def _failed(self, order: GroupOrder, error: RemoteError | WorkerLost) -> GroupFailed:
        self._recent.append(True)
        self._report("group-failed", order, error, "warning")
        failed = sum(self._recent)
        if _is_input(error):
            return GroupFailed(error, error)
        too_many = failed > self._patience.max_failed_share * WINDOW
        return GroupFailed(error, TooManyFailed(failed, error) if too_many else None)

    def _report(self, kind: str, order: GroupOrder, error: ArealError, level: Level) -> None:
        self._events.add(
            kind, f"{order.task}: {error}", level, task=str(order.task), sequence=order.sequence, error=str(error)
        )


def _heed_cancellation() -> None:
    """A call that is cancelled while its worker dies may report the death: the cancellation still counts."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def _serves(seat: Seat, engine: Worker) -> bool:
    """Whether an engine against which a group failed is sound; one that is not gets no more work, and is replaced."""
    try:
        await engine.call("version")
    except WorkerLost:
        seat.lose(engine)
        return False
    except RemoteError as error:
        seat.end(engine, error.error.text)
        return False
    return True


def _is_loss(error: RemoteError | WorkerLost) -> bool:
    """Whether a worker went away under the group, which is no failure of the group."""
    return isinstance(error, WorkerLost) or error.error.type in _NOBODYS_FAULT


def _is_input(error: RemoteError | WorkerLost) -> bool:
    """Whether what the user gave is wrong, so that no repetition helps."""
    return isinstance(error, RemoteError) and error.error.exit_code == 2
