"""A reward that grows with the weights."""

from __future__ import annotations

import re
import zlib

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import RewardOptions


def make(options: RewardOptions, _context: RewardContext) -> MockReward:
    """The factory."""
    return MockReward(options)


class MockReward:
    """Reads the step of the weights that drew the answer's first token, and the answer's luck."""

    def __init__(self, options: RewardOptions) -> None:
        self._options, self._conduct = options, Conduct(options)

    async def score(self, sample: Sample) -> Score:
        await self._conduct.act("score", zlib.crc32(sample.answer.encode()))
        step, luck = _read(sample.answer)
        share = min(1.0, step / self._options.target)
        return Score(float(luck < 0.25 + share / 2) if self._options.drawn else share)


def _read(answer: str) -> tuple[int, float]:
    """Step and luck; an answer that no mock engine gave is of step 0, and out of luck."""
    found = re.fullmatch(r"([0-9]{1,9}) ([0-9]+(?:\.[0-9]+)?(?:e-[0-9]+)?)", answer)
    return (int(found[1]), float(found[2])) if found else (0, 1.0)
