"""The virtual clock for tests: hours pass in a moment, and the order of events depends on the program alone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from areal_core.pipeline.clock import VirtualLoop

T = TypeVar("T")

__all__ = ["VirtualLoop", "run_virtually"]


def run_virtually(work: Coroutine[Any, Any, T], limit: float = 30 * 86400.0) -> T:
    """The result of `work` on a virtual clock that starts at 0.

    Raises:
        TimeoutError: it was not done after `limit` seconds of that clock, so that it may never be.

    """

    async def limited() -> T:
        task = asyncio.ensure_future(work)
        await asyncio.wait({task}, timeout=limit)
        if task.done():
            return task.result()
        waiting = _waiting()
        task.cancel()
        await asyncio.wait({task})
        raise TimeoutError(f"not done after {limit:g} s of virtual time; waiting in {waiting}")

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(limited())


def _waiting() -> str:
    """What the loop's tasks wait in, the innermost coroutine of each."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    places = {_innermost(task.get_coro()) for task in tasks}
    return ", ".join(sorted(places))


def _innermost(coroutine: Any) -> str:
    name = ""
    while coroutine is not None and hasattr(coroutine, "__qualname__"):
        name = coroutine.__qualname__
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)
    return name
