"""A virtual loop on which somebody looks after every single event, and may end everything there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from areal_core.pipeline.clock import VirtualLoop


class Killed(BaseException):
    """The controller's process is gone; nothing of it may run on."""


class _Ready(deque[asyncio.Handle]):
    """The loop's queue of what runs next; `before` is called before each, which is after the one before it."""

    before: Callable[[], None] = staticmethod(lambda: None)

    def popleft(self) -> asyncio.Handle:
        self.before()
        return super().popleft()


class SimLoop(VirtualLoop):
    """Calls `look` between any two events, and `stuck` where there can be no other, for which a loop waits for ever."""

    def __init__(self, look: Callable[[], None], stuck: Callable[[], None]) -> None:
        super().__init__()
        self._stuck = stuck
        self._ready: deque[asyncio.Handle] = _Ready()  # where asyncio's own loops keep what is ready
        self.look(look)
        self.set_exception_handler(lambda _loop, _context: None)  # what nobody hears of depends on garbage collection

    def _run_once(self) -> None:  # what asyncio's own loops do again and again
        if not self._ready and all(timer.cancelled() for timer in self._scheduled):  # type: ignore[attr-defined]
            self._stuck()
        super()._run_once()  # type: ignore[misc]

    def look(self, look: Callable[[], None]) -> None:
        """Have `look` called from now on."""
        self._ready.before = look  # type: ignore[attr-defined]  # it is ours


def abandon(loop: SimLoop) -> None:
    """Dispose of a loop whose process is gone: what waits on it is ended, unseen, once nobody minds any more."""
    loop.look(lambda: None)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    for _ in range(50):
        loop.call_soon(loop.stop)
        loop.run_forever()
        if not asyncio.all_tasks(loop):
            break
    for task in asyncio.all_tasks(loop):
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is known, and meant
    loop.close()
