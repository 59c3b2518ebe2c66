"""A tracker that keeps nothing."""

from __future__ import annotations

from collections.abc import Mapping

from areal_core.contexts import TrackerContext
from areal_core.data import TrajectoryGroup
from areal_plugins.testing.mocks import TrackerOptions


def make(options: TrackerOptions, _context: TrackerContext) -> MockTracker:
    """The factory."""
    return MockTracker(options)


class MockTracker:
    """Raises, if it is told to."""

    def __init__(self, options: TrackerOptions) -> None:
        self._options = options

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._bear()

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        self._bear()

    def group(self, group: TrajectoryGroup) -> None:
        self._bear()

    def close(self) -> None:
        """Nothing to flush."""

    def _bear(self) -> None:
        if self._options.raises:
            raise RuntimeError("told to fail")
