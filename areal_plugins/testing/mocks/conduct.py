"""How a mock keeps to its script: it lets time pass on the loop's clock, and fails when it is told to."""

from __future__ import annotations

import asyncio
import time
import zlib
from collections import Counter
from collections.abc import Callable

from areal_core.pipeline.clock import VirtualLoop
from areal_core.workers.seeds import derive
from areal_plugins.testing.mocks.options import Fault, Latency, Script

_SPAN = float(1 << 63)


class Conduct:
    """The calls of one component. `raises` makes the error of a call that is told to raise."""

    def __init__(self, script: Script, raises: Callable[[str], Exception] = RuntimeError) -> None:
        self._script, self._raises = script, raises
        self._calls: Counter[str] = Counter()

    def scripted(self, method: str) -> bool:
        """Whether anything is told of `method`."""
        return method in self._script.latency or any(fault.method == method for fault in self._script.faults)

    async def act(self, method: str, key: int | None = None) -> int:
        """Whatever a call of `method` does beside its work; how often it shall answer.

        A drawn latency depends on `key`, by default on how many calls there were before.
        """
        seconds, fault = self._next(method, key)
        if seconds:
            await asyncio.sleep(seconds)
        if fault is not None and fault.kind == "hang":
            await asyncio.get_running_loop().create_future()
        return 2 if fault is not None and fault.kind == "twice" else 1

    def act_here(self, method: str) -> None:
        """The same for a method that is no coroutine, which holds up its thread."""
        seconds, _ = self._next(method, None)
        if seconds:
            _hold(seconds)

    def _next(self, method: str, key: int | None) -> tuple[float, Fault | None]:
        """The seconds that this call takes and what goes wrong with it; raises where that is what goes wrong."""
        self._calls[method] += 1
        call = self._calls[method]
        fault = next((fault for fault in self._script.faults if fault.strikes(method, call)), None)
        if fault is not None and fault.kind == "raise":
            raise self._raises(f"told to fail at call {call} of {method}")
        late = fault.seconds if fault is not None and fault.kind == "late" else 0.0
        return self._latency(method, call if key is None else key) + late, fault

    def _latency(self, method: str, key: int) -> float:
        told = self._script.latency.get(method, 0.0)
        if not isinstance(told, Latency):
            return told
        return told.at(derive(self._script.draws, zlib.crc32(method.encode()), key) / _SPAN)


def _hold(seconds: float) -> None:
    """Let time pass without giving way: on a virtual clock at once, else for real."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        loop = None  # a thread of its own
    if isinstance(loop, VirtualLoop):
        loop.advance(seconds)
    else:
        time.sleep(seconds)
