"""A service of what can happen to a worker, which executors under test start."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing

import numpy as np

from areal_core.errors import InputError
from areal_core.workers.service import Dial

ROLE = f"{__name__}:Errands"


class Errands:
    """Does small things."""

    def __init__(self, dial: Dial, threaded: bool) -> None:
        self._dial, self._threaded = dial, threaded
        self._began = asyncio.Event()

    async def double(self, array: np.ndarray) -> np.ndarray:
        """Twice the array."""
        return array * 2

    async def refuse(self) -> None:
        """Raise what is at fault with an input."""
        raise InputError("tasks.jsonl:3", "has no answer")

    async def crash(self) -> None:
        """Raise what nobody expects."""
        raise ZeroDivisionError("by nothing")

    async def count(self, n: int) -> AsyncIterator[int]:
        """0 to n-1."""
        for number in range(n):
            await asyncio.sleep(0)
            yield number

    async def forever(self) -> None:
        """Never return."""
        self._began.set()
        await asyncio.Event().wait()

    async def began(self) -> bool:
        """Return once `forever` was called."""
        await self._began.wait()
        return True

    async def relay(self, address: str, n: int) -> list[int]:
        """What the worker at `address` counts."""
        peer = await self._dial(address)
        try:
            async with aclosing(peer.stream("count", n)) as numbers:  # type: ignore[type-var]
                return [number async for number in numbers]
        finally:
            await peer.close()

    async def process(self) -> int:
        """Of this worker."""
        return os.getpid()

    async def variable(self, name: str) -> str | None:
        """Of this worker's environment."""
        return os.environ.get(name)

    async def die(self) -> None:
        """End the process at once, as a crash in native code does."""
        os._exit(3)

    async def close(self) -> None:
        """Nothing to free."""


class Broken:
    """Cannot be made."""

    def __init__(self, dial: Dial, threaded: bool) -> None:
        raise InputError("model/config.json", "is not JSON")
