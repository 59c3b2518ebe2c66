"""A reward that grows with the weights."""

from __future__ import annotations

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.testing.mocks import RewardOptions


def make(options: RewardOptions, _context: RewardContext) -> MockReward:
    """The factory."""
    return MockReward(options)


class MockReward:
    """Reads the step of the weights that drew the answer's first token, and the answer's luck."""

    def __init__(self, options: RewardOptions) -> None:
        self._options = options

    async def score(self, sample: Sample) -> Score:
        if self._options.raises:
            raise RuntimeError("told to fail")
        step, luck = sample.answer.split()
        share = min(1.0, int(step) / self._options.target)
        return Score(float(float(luck) < 0.25 + share / 2) if self._options.drawn else share)
