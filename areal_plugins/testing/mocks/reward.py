"""A reward that grows with the weights."""

from __future__ import annotations

import zlib

from areal_core.data import Sample, Score
from areal_core.protocols import RewardContext
from areal_plugins.testing.mocks import RewardOptions


def make(options: RewardOptions, _context: RewardContext) -> MockReward:
    """The factory."""
    return MockReward(options)


class MockReward:
    """Reads the step of the weights that drew the answer's first token."""

    def __init__(self, options: RewardOptions) -> None:
        self._options = options

    async def score(self, sample: Sample) -> Score:
        if self._options.raises:
            raise RuntimeError("told to fail")
        luck = zlib.crc32(sample.prompt.encode()) / (1 << 32)
        if luck < self._options.equal:
            return Score(0.0)
        return Score(min(1.0, int(sample.answer) / self._options.target))
