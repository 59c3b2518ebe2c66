"""A service of everything that can happen to a worker, loaded like a local plugin."""

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import numpy as np

from areal_core.errors import InputError


class Errands:
    def __init__(self, dial: Any, threaded: bool) -> None:
        self._dial, self._threaded = dial, threaded
        self._happened: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._at_close: list[Path] = []

    async def double(self, array: np.ndarray) -> np.ndarray:
        return array * 2

    async def refuse(self) -> None:
        raise InputError("tasks.jsonl:3", "no answer")

    async def crash(self) -> None:
        raise ZeroDivisionError("oh")

    async def happened(self, event: str) -> None:
        """Return once it has."""
        await self._happened[event].wait()

    async def forever(self) -> None:
        self._happened["began"].set()
        try:
            await asyncio.Event().wait()
        finally:
            self._happened["cancelled"].set()

    async def count(self, n: int) -> AsyncIterator[int]:
        try:
            for i in range(n):
                await asyncio.sleep(0)
                yield i
        finally:
            self._happened["closed"].set()

    async def ask(self, address: str, n: int) -> list[int]:
        """What the worker at `address` counts."""
        other = await self._dial(address)
        try:
            async with aclosing(other.stream("count", n)) as items:
                return [item async for item in items]
        finally:
            await other.close()

    async def about(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "threaded": self._threaded,
            "environment": dict(os.environ),
            "executable": sys.executable,
            "modules": sorted(sys.modules),
            "command": _command_line(),
        }

    async def spawn(self) -> int:
        """A child that nobody waits for; its process."""
        return _sleeper()

    async def touch_at_close(self, file: str) -> None:
        self._at_close.append(Path(file))

    async def hang(self) -> None:
        self._happened["began"].set()
        time.sleep(1000)  # noqa: ASYNC251 - what a broken component does

    async def grab(self) -> None:
        """Hold the interpreter's lock for ever, so that no thread runs, as an endless call of an extension does."""
        reading, _ = os.pipe()
        ctypes.PyDLL(None).read(reading, ctypes.create_string_buffer(1), 1)

    async def say(self, text: str) -> None:
        os.write(1, f"{text}\n".encode())

    async def close(self) -> None:
        for file in self._at_close:
            file.touch()


class Stubborn(Errands):
    """Does not end when it is asked to."""

    async def close(self) -> None:
        await asyncio.Event().wait()


class Broken:
    def __init__(self, dial: Any, threaded: bool) -> None:
        raise InputError("model/config.json", "is not JSON")


def _sleeper() -> int:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"]).pid


def _command_line() -> str:
    return Path("/proc/self/cmdline").read_text()
