"""Making room in a worker before its memory runs out, and saying so."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from typing import Any

from areal_core.workers import memory
from areal_core.workers.plans import Health, Note

MARGIN = 0.1
"""So far below the limit memory must be before a worker does more at once again."""

CALM = 6
"""Looks in a row that must find it so; and so many a worker that can do no more is left alone between two attempts."""

STEPS = 8
"""In so many steps it returns to what it could do at first."""

Run = Callable[[str, Callable[[], None]], Awaitable[None]]
"""Calls a method of the component where its blocking calls belong; the text names the operation."""


async def here(_operation: str, call: Callable[[], None]) -> None:
    """On the loop."""
    call()


class Guard:
    """Looks at a worker's memory whenever it is asked how it is.

    Over the limit it collects garbage and has the component empty its caches; if that does not help, the
    component works on half as many things at once, until there has been room again for a while. The component
    may have `memory`, `relieve` and `resize` (see `protocols.Engine`); where it does not know its memory, `host`
    says whether the machine's counts. `width` is what it works on at once; None: it cannot be told.
    """

    def __init__(
        self, component: object, limit: float | None, host: bool, width: int | None = None, run: Run = here
    ) -> None:
        blind = not host and not hasattr(component, "memory")
        self._component, self._limit = component, None if blind else limit
        self._host, self._run = host, run
        self._full = self._width = width if hasattr(component, "resize") else None
        self._pressed = False
        self._calm = self._rest = 0
        self._notes: list[Note] = []
        self._looking: asyncio.Task[None] | None = None

    def report(self) -> Health:
        """How the worker is, as of the last look; starts another, which may take as long as a step of training."""
        if self._looking is not None and self._looking.done():
            ended, self._looking = self._looking, None
            ended.result()
        if self._looking is None and self._limit is not None:
            self._looking = asyncio.ensure_future(self.look(self._limit))
        notes, self._notes = tuple(self._notes), []
        return Health(notes)

    async def look(self, limit: float) -> None:
        """Make room if more than the share `limit` of the memory is in use."""
        before = self._measure()
        if before is None:
            return
        if before < limit:
            self._pressed = False
            await self._widen(before < limit - MARGIN)
            return
        self._calm = 0
        if self._rest:
            self._rest -= 1
            return
        gc.collect()
        await self._call("relieve")
        after = self._measure() or 0.0
        shrunk = after >= limit and await self._halve()
        if shrunk or not self._pressed:
            self._note(before, after, shrunk)
        self._pressed = True
        if self._width in (None, 1) and not shrunk:
            self._rest = CALM  # emptying caches costs time whenever they fill again

    def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()

    def _measure(self) -> float | None:
        ask = getattr(self._component, "memory", None)
        share: float | None = ask() if ask is not None else None
        return memory.share() if share is None and self._host else share

    async def _halve(self) -> bool:
        if self._width is None or self._width == 1:
            return False
        await self._resize(self._width // 2)
        return True

    async def _widen(self, roomy: bool) -> None:
        self._calm = self._calm + 1 if roomy else 0
        if self._width is None or self._full is None or self._width == self._full or self._calm < CALM:
            return
        self._calm = 0
        await self._resize(min(self._full, self._width + max(1, self._full // STEPS)))
        if self._width == self._full:
            text = f"there is room again: it works on {self._full} at once, as before"
            self._notes.append(Note("memory-restored", text, "info", {"concurrent": float(self._full)}))

    async def _resize(self, width: int) -> None:
        self._width = width
        await self._call("resize", width)

    async def _call(self, operation: str, *args: Any) -> None:
        method = getattr(self._component, operation, None)
        if method is not None:
            await self._run(operation, lambda: method(*args))

    def _note(self, before: float, after: float, shrunk: bool) -> None:
        text = f"{before:.0%} of its memory was in use, {after:.0%} after caches were emptied"
        figures = {"before": before, "after": after}
        if shrunk and self._width is not None:
            text += f"; it works on {self._width} at once from now on"
            figures["concurrent"] = float(self._width)
        self._notes.append(Note("memory-pressure", text, "warning", figures))
