"""A tracker that keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping

from areal_core.contexts import TrackerContext
from areal_core.data import TrajectoryGroup
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import Script


def make(options: Script, _context: TrackerContext) -> MockTracker:
    """The factory."""
    return MockTracker(options)


class MockTracker:
    """Does what it is told to, and nothing else."""

    def __init__(self, options: Script) -> None:
        self._conduct = Conduct(options)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._conduct.act_here("log")

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self._conduct.act_here("evaluation")

    def group(self, group: TrajectoryGroup) -> None:
        self._conduct.act_here("group")

    def close(self) -> None:
        self._conduct.act_here("close")
