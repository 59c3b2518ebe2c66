"""Waiting for a change of state on one event loop, without a lock and without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Condition:
    """Coroutines wait `until` something holds; whoever changes what they look at calls `changed`.

    However often that is within one turn of the loop, what is waited for is looked at once, after it,
    and only who has it is woken: thousands may wait.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._looking = False

    def changed(self) -> None:
        """Look again at what everyone waits for."""
        if self._waiting and not self._looking:
            self._looking = True
            self._waiting[0][1].get_loop().call_soon(self._look)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return once `holds()`; at once, without giving way, when it does already."""
        while not holds():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((holds, waiter))
            await waiter

    def _look(self) -> None:
        self._looking = False
        waiting, self._waiting = self._waiting, []
        for holds, waiter in waiting:
            if waiter.done():
                continue
            if _holds(holds):
                waiter.set_result(None)
            else:
                self._waiting.append((holds, waiter))


def _holds(holds: Callable[[], bool]) -> bool:
    """Whether it does; one that raises is for its own coroutine to find out."""
    try:
        return holds()
    except Exception:
        return True
