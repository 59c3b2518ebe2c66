"""Waiting for a change of state on one event loop, without a lock and without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Condition:
    """Coroutines wait `until` something holds; whoever changes what they look at calls `changed`."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    def changed(self) -> None:
        """Let everyone who waits look again."""
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()`; at once, without giving way, when it does already."""
        while not holds():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter
