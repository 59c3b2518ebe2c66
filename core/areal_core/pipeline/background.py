"""Work beside the training loop, and the one way in which a run is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from areal_core.pipeline.condition import Condition

T = TypeVar("T")


class Stopped(Exception):
    """Work was given up because the run is to stop; `Stop.cause` says why."""


class Stop:
    """Whether the run is to stop at its next step, and the error that made it so (None: somebody asked)."""

    def __init__(self, condition: Condition) -> None:
        self._condition = condition
        self.asked: str | None = None
        self.cause: BaseException | None = None
        self._wanted: str | None = None
        self._lasting: BaseException | None = None
        self._racing: list[asyncio.Task[Any]] = []

    def ask(self, reason: str, cause: BaseException | None = None) -> None:
        """Stop. Only the first reason counts."""
        if cause is None:
            self._wanted = self._wanted or reason
        if self.asked is not None:
            return
        self.asked, self.cause = reason, cause
        for task in self._racing:
            task.cancel()
        self._condition.changed()

    def fail(self, cause: BaseException, lasting: bool = False) -> None:
        """Stop because of an error. A `lasting` one is still there when another, which came first, is overcome."""
        if lasting:
            self._lasting = self._lasting or cause
        self.ask("failed", cause)

    def overcome(self) -> None:
        """The cause is dealt with, and work may go on, unless there is another or somebody has asked meanwhile."""
        self.asked = self.cause = None
        if self._lasting is not None:
            self.fail(self._lasting)
        elif self._wanted is not None:
            self.ask(self._wanted)

    async def race(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns; raises `Stopped`, with `work` cancelled, once the run is to stop."""
        if self.asked is not None:
            work.close()
            raise Stopped
        task = asyncio.ensure_future(work)
        self._racing.append(task)
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self.asked is not None and not (current and current.cancelling()):
                raise Stopped from None
            raise
        finally:
            self._racing.remove(task)


class Background:
    """Tasks that run beside the training loop; the first that raises stops the run with its error.

    `lasting`: they belong to the run, not to one training that may be lost and begun again.
    """

    def __init__(self, stop: Stop, lasting: bool = False) -> None:
        self._stop, self._lasting = stop, lasting
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run `work`."""
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    async def cancel(self) -> None:
        """End all that still runs, and wait until it has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not isinstance(error, Stopped):
            self._stop.fail(error, self._lasting)


async def together(work: Sequence[Awaitable[Any]]) -> list[Any]:
    """The results of all; the first error ends the others and is raised as it is."""
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def completed(work: Coroutine[Any, Any, None], hurry: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let `work` come to its end even if this is cancelled meanwhile: then `hurry` runs beside it, once.

    Raises:
        CancelledError: it was; both have ended.

    """
    task, hurrying = asyncio.ensure_future(work), list[asyncio.Task[None]]()
    while running := [each for each in (task, *hurrying) if not each.done()]:
        try:
            await asyncio.wait(running)
        except asyncio.CancelledError:
            hurrying = hurrying or [asyncio.ensure_future(hurry())]
    for each in (task, *hurrying):
        each.result()
    if hurrying:
        raise asyncio.CancelledError
