"""Time, which the pipeline only ever reads from its event loop, and a loop that makes it virtual.

On a `VirtualLoop` an hour of waiting takes no time, and the order of events depends on the program
alone: what runs a debug run (`AREAL_DEBUG_MODE=1`), the tests, and the planning of clusters that
nobody here owns.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_TICKS = float(1 << 20)


def debug_mode() -> bool:
    """Whether `AREAL_DEBUG_MODE` asks for a run in one process and a fixed order of events."""
    return os.environ.get("AREAL_DEBUG_MODE", "0") not in ("", "0")


def make_loop(virtual: bool) -> asyncio.AbstractEventLoop:
    """A loop on the virtual clock, or the platform's own."""
    return VirtualLoop() if virtual else asyncio.new_event_loop()


class _PatientSelector(selectors.DefaultSelector):
    """Never waits for a timer: it moves `now` instead. Waits for real where only I/O can go on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        # The loop's own pipe is always registered; anything else is I/O that takes real time.
        if timeout is None or len(self.get_map()) > 1:
            ready = super().select(timeout)
        if not ready and timeout is not None:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its clock stands still while anything is ready, and jumps to the next timer when nothing is.

    Times are multiples of 2**-20 s, so that sums of them are exact and the order of two timers
    cannot depend on how late in a run they were set. What would run in a thread runs at once.
    """

    def __init__(self) -> None:
        self._patient = _PatientSelector()
        super().__init__(self._patient)

    def time(self) -> float:
        return self._patient.now

    def advance(self, seconds: float) -> None:
        """Let time pass while everything stands still, as work does that never gives way to the loop."""
        self._patient.now += _tick(seconds)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(self.time() + _tick(delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(_tick(when), callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Callable[[Unpack[Ts]], T], *args: *Ts) -> asyncio.Future[T]:
        """Run `func` now and here; the future is done when this returns."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def _tick(seconds: float) -> float:
    return round(seconds * _TICKS) / _TICKS
