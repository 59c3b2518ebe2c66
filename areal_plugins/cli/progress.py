"""How a run is shown while it goes on: live on a terminal, in plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from io import TextIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO

if TYPE_CHECKING:
    from areal_core.pipeline.events import Event
    from areal_core.pipeline.run import EvaluationReport, StepReport

EVERY = 2.0
"""Seconds between two plain lines about steps, at least."""


class Display(Protocol):
    """A `Watcher` that can be ended."""

    def phase(self, text: str) -> None: ...

    def stepped(self, report: StepReport) -> None: ...

    def evaluated(self, report: EvaluationReport) -> None: ...

    def happened(self, event: Event) -> None: ...

    def close(self) -> None: ...


def open_display(stream: TextIO | None = None) -> Display:
    """The display that suits `stream`, standard output by default."""
    stream = stream or sys.stdout or Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  it is closed: to nobody
    if not stream.isatty():
        return PlainDisplay(stream)
    from areal_plugins.cli.live import LiveDisplay

    return LiveDisplay(stream)


class Lasting(TextIOBase):
    """`stream`, but nothing fails once nobody is there: a terminal may be closed, a pipe's reader gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """All of it, or nothing that matters."""
        try:
            return self._stream.write(text)
        except OSError:
            return self._lose(len(text))

    def flush(self) -> None:
        """What was written so far."""
        try:
            self._stream.flush()
        except OSError:
            self._lose()

    def isatty(self) -> bool:
        """As the stream."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """As the stream."""
        return self._stream.fileno()

    def _lose(self, size: int = 0) -> int:
        """From now on all goes nowhere, also what the interpreter flushes at its end."""
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), self._stream.fileno())
        return size


def say(text: str, stream: TextIO) -> None:
    """One line, at once."""
    print(text, file=Lasting(stream), flush=True)


def worth_saying(event: Event) -> bool:
    """Whether people must know of it now: of warnings and errors, but the command itself says why it fails."""
    return event.level != "info" and event.kind != "run-failed"


class PlainDisplay:
    """One line a step, or every few seconds; one for everything else that people must know."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._pace = Pace()
        self._printed = -EVERY

    def phase(self, text: str) -> None:
        self._print(f"[{text}]")

    def stepped(self, report: StepReport) -> None:
        self._pace.stepped(report)
        now, last = time.monotonic(), report.step == report.steps
        if report.step == 1 or last or now - self._printed >= EVERY:
            self._printed = now
            self._print(step_line(report, self._pace.left(report)))

    def evaluated(self, report: EvaluationReport) -> None:
        self._print(evaluation_line(report))

    def happened(self, event: Event) -> None:
        if worth_saying(event):
            self._print(f"{event.level}: {event.message}")

    def close(self) -> None:
        """Nothing is left to print."""

    def _print(self, text: str) -> None:
        say(text, self._stream)


class Pace:
    """How long a step takes lately, and so how long the rest may take."""

    def __init__(self) -> None:
        self._stage = ""
        self._seconds: float | None = None

    def stepped(self, report: StepReport) -> None:
        """One more step; a new stage has a pace of its own."""
        timings = report.timings
        if self._seconds is None or report.stage != self._stage:
            # The wall time of a stage's first step holds the start of the run, or an evaluation.
            self._seconds = timings.get("wait", 0.0) + timings.get("train", 0.0)
        else:
            self._seconds += 0.1 * (timings.get("wall", 0.0) - self._seconds)
        self._stage = report.stage

    def left(self, report: StepReport) -> float:
        """Seconds to the last step, at this pace."""
        return (self._seconds or 0.0) * (report.steps - report.step)


def step_line(report: StepReport, left: float) -> str:
    """A step's figures in one line."""
    parts = [f"step {report.step}/{report.steps} {report.stage}", *figures(report).values()]
    return "  ".join([*parts, f"left {duration(left)}"])


def figures(report: StepReport) -> dict[str, str]:
    """What people watch, by name: reward, staleness, tokens a second, how busy the devices are."""
    metrics, timings = report.metrics, report.timings
    found = {
        "loss": _number(metrics, "loss", "loss {:.4g}"),
        "reward": _number(metrics, "reward", "reward {:.3f}"),
        "lag": _number(metrics, "lag/mean", "lag {:.1f}"),
        "generation": _number(timings, "generated_per_second", "generates {} tok/s", count),
        "training": _number(timings, "trained_per_second", "trains {} tok/s", count),
        "busy": _number(timings, "utilization", "busy {:.0%}"),
        "samples": _number(metrics, "sample_utilization", "used {:.0%}"),
    }
    return {name: text for name, text in found.items() if text}


def evaluation_line(report: EvaluationReport) -> str:
    """The scores of one evaluation."""
    scores = [
        f"{name} {s.accuracy:.3f} ± {s.stderr:.3f} ({s.tasks - s.failed} tasks)"
        for name, s in report.environments.items()
    ]
    return f"held-out accuracy after step {report.step}: {', '.join(scores)}"


def duration(seconds: float) -> str:
    """`47s`, `3m20s` or `2h05m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def count(value: float) -> str:
    """A number in three digits or so: `950`, `12.3k`."""
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def _number(values: Mapping[str, float], name: str, pattern: str, convert: type | object = float) -> str:
    if name not in values:
        return ""
    return pattern.format(count(values[name]) if convert is count else values[name])
