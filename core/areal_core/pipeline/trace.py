"""`trace.json`: what every part of the pipeline did when, in the Chrome trace format (for Perfetto).

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU is the format; it is
an array with one event a line, so that a run that breaks off leaves a file that can still be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from areal_core.pipeline.growing import Growing

log = logging.getLogger(__name__)

AT_ONCE = 100
"""Events that are written together."""

_PROCESS = 1
_END = b'{"ph":"M","name":"process_name","pid":1,"tid":0,"args":{"name":"areal-plugins"}}]\n'


class Trace:
    """Spans on named lanes, in seconds of `clock`; groups of rollouts, which overlap, are drawn by sequence.

    Without a path nothing is kept, but spans are still measured.
    """

    def __init__(self, clock: Callable[[], float], path: Path | None = None, elapsed: float = 0.0) -> None:
        self.now = clock
        self._start = clock() - elapsed
        self._lanes: dict[str, int] = {}
        self._events: list[bytes] = []
        self._file = _reopen(path) if path else None

    @property
    def elapsed(self) -> float:
        """Seconds since the run's start, earlier parts of a resumed run included."""
        return self.now() - self._start

    def span(self, name: str, lane: str, began: float, **args: Any) -> float:
        """Something on `lane` that began at `began` and ends now; its seconds."""
        seconds = self.now() - began
        log.debug("%s: %s took %.6f s %s", lane, name, seconds, args)
        self._write({"ph": "X", "name": name, "ts": self._micros(began), "dur": round(seconds * 1e6)}, lane, args)
        return seconds

    def overlapping(self, name: str, lane: str, key: int, began: float, **args: Any) -> float:
        """As `span`, for things that overlap on their lane; `key` tells them apart."""
        log.debug("%s: %s %d took %.6f s %s", lane, name, key, self.now() - began, args)
        both = {"name": name, "cat": lane, "id": key}
        self._write({"ph": "b", "ts": self._micros(began), **both}, lane, args)
        self._write({"ph": "e", "ts": self._micros(self.now()), **both}, lane, {})
        return self.now() - began

    def flush(self) -> None:
        """Write what was added since; what there is no room for is left out of the picture."""
        if self._file is not None:
            with suppress(OSError):
                self._file.add(b"".join(self._events))
            self._events.clear()

    def close(self) -> None:
        """End the array."""
        if self._file is not None:
            self._events.append(_END)
            self.flush()
            self._file.close()
            self._file = None

    def _write(self, event: dict[str, Any], lane: str, args: dict[str, Any]) -> None:
        if self._file is None:
            return
        if lane not in self._lanes:
            self._lanes[lane] = len(self._lanes) + 1
            self._write({"ph": "M", "name": "thread_name"}, lane, {"name": lane})
        event |= {"pid": _PROCESS, "tid": self._lanes[lane], "args": args}
        self._events.append(msgspec.json.encode(event) + b",\n")
        if len(self._events) >= AT_ONCE:
            self.flush()

    def _micros(self, moment: float) -> int:
        return round((moment - self._start) * 1e6)


def _reopen(path: Path) -> Growing:
    """The file, to be continued: with the array open at its end."""
    file = Growing(path)
    if not file.cut(lambda content: content.removesuffix(_END).rfind(b"\n") + 1):
        file.add(b"[\n")
    return file
