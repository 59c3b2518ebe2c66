"""A group that takes far longer than its peers is rolled out a second time elsewhere; the first answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from attrs import frozen

from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.pace import Pace
from areal_core.pipeline.pool import Pool, Seat
from areal_core.workers.plans import GroupOrder, GroupResult

SHARE = 20
"""One in so many groups under way may have a second order out, and always one."""


@frozen
class Desk:
    """Who takes an order: a rollout worker, and the engine it is to use, if any."""

    host: Seat
    engine: Seat | None

    @property
    def seats(self) -> tuple[Seat, ...]:
        return (self.host,) if self.engine is None else (self.engine, self.host)

    def take(self, load: int) -> None:
        """Count `load` trajectories at every seat, from the moment it is chosen: many choose before any has begun."""
        for seat in self.seats:
            seat.take(load)

    def free(self, load: int) -> None:
        """Count them no more."""
        for seat in self.seats:
            seat.free(load)


Send = Callable[[GroupOrder, Desk], Coroutine[Any, Any, GroupResult]]
"""Has an order carried out at a desk."""


def choose(pool: Pool, but: Seat | None) -> Seat:
    """The lightest that is ready, and is not `but` if there is another."""
    others = [] if but is None else [seat for seat in pool.ready if seat is not but]
    return min(others, key=lambda seat: seat.load) if others else pool.lightest()


@frozen(eq=False)
class _Try:
    """An order that is out: where, and since when."""

    desk: Desk
    began: float
    task: asyncio.Task[GroupResult]


class Hedges:
    """Sends orders, and late ones once more: those that somebody waits for, or that are with a slow worker."""

    def __init__(
        self,
        engines: Pool,
        rollouts: Pool,
        pace: Pace,
        send: Send,
        can: Callable[[], bool],
        condition: Condition,
        events: Events,
    ) -> None:
        """`can` says whether an order may be sent now."""
        self._engines, self._rollouts, self._pace, self._send, self._can = engines, rollouts, pace, send, can
        self._condition, self._events = condition, events
        self._under_way = self._hedged = 0
        self._losers: set[asyncio.Task[GroupResult]] = set()

    async def race(self, order: GroupOrder, desk: Desk, awaited: Callable[[], bool]) -> GroupResult:
        """The group's result, wherever it comes from first; raises what the last try raised."""
        due = self._pace.due(len(order.members)) if order.mode == "generate" else None
        self._under_way += 1
        try:
            if due is None:
                desk.take(len(order.members))
                try:
                    return await self._timed(order, desk)
                finally:
                    desk.free(len(order.members))
            return await self._watched(order, desk, awaited, due)
        finally:
            self._under_way -= 1

    async def _timed(self, order: GroupOrder, desk: Desk) -> GroupResult:
        began = asyncio.get_running_loop().time()
        result = await self._send(order, desk)
        self._pace.took(len(order.members), asyncio.get_running_loop().time() - began)
        self._judge(order, desk, began)
        return result

    async def _watched(self, order: GroupOrder, desk: Desk, awaited: Callable[[], bool], due: float) -> GroupResult:
        tries = [self._begin(order, desk)]
        first = tries[0].task
        hedged = False
        try:
            if not (await asyncio.wait({first}, timeout=due))[0]:
                first.add_done_callback(lambda _: self._condition.changed())
                await self._condition.until(lambda: first.done() or self._worth(desk, awaited))
                if hedged := not first.done():
                    self._hedged += 1
                    tries.append(self._hedge(order, desk, due))
            return await _first([attempt.task for attempt in tries])
        finally:
            self._hedged -= hedged
            for attempt in tries:
                self._end(order, attempt, hedged)

    def _begin(self, order: GroupOrder, desk: Desk) -> _Try:
        load = len(order.members)
        desk.take(load)
        task = asyncio.ensure_future(self._timed(order, desk))
        task.add_done_callback(lambda _: desk.free(load))
        return _Try(desk, asyncio.get_running_loop().time(), task)

    def _hedge(self, order: GroupOrder, desk: Desk, due: float) -> _Try:
        other = Desk(choose(self._rollouts, desk.host), choose(self._engines, desk.engine))
        first, second = ([seat.name for seat in of.seats] for of in (desk, other))
        text = f"{order.task} has taken {due:.1f} s with {' and '.join(first)}: {' and '.join(second)} try, too"
        usual = self._pace.usual(len(order.members))
        facts = {"sequence": order.sequence, "due": due, "usual": usual, "first": first, "second": second}
        self._events.add("group-hedged", text, "info", task=str(order.task), **facts)
        return self._begin(order, other)

    def _worth(self, desk: Desk, awaited: Callable[[], bool]) -> bool:
        if self._hedged >= max(1, self._under_way // SHARE) or not self._can():
            return False
        return (awaited() or any(map(self._pace.slow, desk.seats))) and self._elsewhere(desk)

    def _elsewhere(self, desk: Desk) -> bool:
        """Whether anybody else could do it."""
        others = ((seat, mine) for pool, mine in self._pools(desk) for seat in pool.seats)
        return any(seat.ready and seat is not mine for seat, mine in others)

    def _pools(self, desk: Desk) -> tuple[tuple[Pool, Seat | None], ...]:
        return (self._engines, desk.engine), (self._rollouts, desk.host)

    def _judge(self, order: GroupOrder, desk: Desk, began: float) -> None:
        seconds = asyncio.get_running_loop().time() - began
        for seat, times in self._pace.worked(len(order.members), seconds, desk.seats):
            text = f"{seat.name} takes {times:.1f} times as long for its groups as the others"
            self._events.add("worker-slow", text, worker=seat.name, times=times)

    def _end(self, order: GroupOrder, attempt: _Try, hedged: bool) -> None:
        """Cancel a try that is not needed any more; nobody waits for its end, which may be long in coming."""
        task = attempt.task
        if task.done():
            if not task.cancelled():
                task.exception()
            return
        if hedged:
            self._judge(order, attempt.desk, attempt.began)
        task.cancel()
        self._losers.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[GroupResult]) -> None:
        self._losers.discard(task)
        if not task.cancelled():
            task.exception()


async def _first(tries: list[asyncio.Task[GroupResult]]) -> GroupResult:
    """The result of the first that has one; the error of the last when none has."""
    left = list(tries)
    while True:
        await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in left if task.done()]
        left = [task for task in left if not task.done()]
        good = [task for task in ended if not task.cancelled() and task.exception() is None]
        if good or not left:
            return (good or ended[-1:])[0].result()
