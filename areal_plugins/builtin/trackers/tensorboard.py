"""Figures as TensorBoard scalars, through tensorboardX."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from areal_core.contexts import TrackerContext
from areal_core.data import TrajectoryGroup
from areal_plugins.builtin.trackers import TensorboardOptions


class TensorboardTracker:
    """Writes one event file from the first figure on.

    Steps appear as `train/NAME` (names with a group of their own, as `dropped/stale`, as they are) and
    evaluations as `evaluation/NAME`. TensorBoard hides what an interrupted run wrote beyond the step
    from which it is resumed. Trajectories are not written.
    """

    def __init__(self, options: TensorboardOptions, context: TrackerContext) -> None:
        self._directory = context.run.directory / Path(options.directory)
        self._flush_seconds = options.flush_seconds
        self._open = summary_writer()
        self._writer: Any = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        writer = self._started(step)
        for name, value in metrics.items():
            writer.add_scalar(name if "/" in name else f"train/{name}", value, step)

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        # Step `step` was logged before it was evaluated, so only what comes after it is to be hidden.
        writer = self._started(step + 1)
        for name, value in metrics.items():
            writer.add_scalar(f"evaluation/{name}", value, step)

    def group(self, group: TrajectoryGroup) -> None:
        """Nothing: see the class."""

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _started(self, step: int) -> Any:
        """The writer; a new one hides all figures from `step` on that are there already."""
        if self._writer is None:
            lives = len(list(self._directory.glob("events.*")))  # files are named by the second: a resume is quicker
            self._writer = self._open(
                str(self._directory), purge_step=step, flush_secs=self._flush_seconds, filename_suffix=f".{lives}"
            )
        return self._writer


def summary_writer() -> Any:
    """tensorboardX's `SummaryWriter`, without torch.

    tensorboardX 2.6 imports torch, where it is installed, for an annotation alone, and does without it
    where it is not. A controller shall not pay seconds and memory for that; to be dropped once
    `import tensorboardX` leaves torch alone.
    """
    with hidden("torch"):
        return import_module("tensorboardX").SummaryWriter


@contextmanager
def hidden(module: str) -> Iterator[None]:
    """Make `module` seem not installed, unless it is loaded already."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = None  # type: ignore[assignment]  # the import system's mark for "cannot be imported"
    try:
        yield
    finally:
        del sys.modules[module]
