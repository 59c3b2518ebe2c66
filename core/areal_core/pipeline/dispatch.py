"""Has one group rolled out: which worker and engine, and what to do when it fails."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import cast

from attrs import evolve, frozen

from areal_core.errors import ArealError, RemoteError, WorkerLost
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events, Level
from areal_core.pipeline.pool import Pool, Seat
from areal_core.protocols import Worker
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


@frozen
class Patience:
    """`retries` of a group whose rollout raises; `losses` of workers that it survives; the share that may fail."""

    retries: int
    losses: int
    max_failed_share: float


class Dispatcher:
    """Sends orders to the lightest rollout worker, against the lightest engine, while `swapping` is False."""

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

    @property
    def recent(self) -> tuple[bool, ...]:
        """Which of the last groups failed."""
        return tuple(self._recent)

    def can(self, mode: str = "generate") -> bool:
        """Whether an order would be sent at once."""
        if not self._rollouts.ready:
            return False
        return mode != "generate" or (bool(self._engines.ready) and not self._swapping())

    async def run(self, order: GroupOrder, again: Callable[[], None] = lambda: None) -> GroupResult:
        """The group, scored. `again` is called before the whole group is rolled out another time.

        Raises:
            GroupFailed: it was tried often enough.

        """
        failures = losses = 0
        while True:
            await self._condition.until(lambda: self.can(order.mode))
            if failures or losses:
                again()
            try:
                result = await self._send(order)
            except (RemoteError, WorkerLost) as error:
                _heed_cancellation()
                lost = _is_loss(error)
                failures, losses = failures + (not lost), losses + lost
                if self._gives_up(error, failures, losses):
                    raise self._failed(order, error) from error
                self._report("group-retried", order, error, "info" if lost else "warning")
            else:
                self._recent.append(False)
                return result

    async def _send(self, order: GroupOrder) -> GroupResult:
        if order.mode != "generate":
            return await self._roll_out(order)
        seat = self._engines.lightest()
        with seat.carrying(len(order.members)) as engine:
            try:
                return await self._roll_out(evolve(order, engine=engine.address))
            except RemoteError as error:
                if _is_input(error) or await _serves(seat, engine) or _is_loss(error):
                    raise
                raise WorkerLost(seat.name, error.error.text) from error

    async def _roll_out(self, order: GroupOrder) -> GroupResult:
        host = self._rollouts.lightest()
        with host.carrying(len(order.members)) as worker:
            try:
                return cast(GroupResult, await worker.call("run_group", order))
            except WorkerLost:
                host.lose(worker)
                raise

    def _gives_up(self, error: RemoteError | WorkerLost, failures: int, losses: int) -> bool:
        return failures > self._patience.retries or losses > self._patience.losses or _is_input(error)

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
