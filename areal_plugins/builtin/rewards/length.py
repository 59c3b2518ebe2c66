"""The reward `length`: the answer is neither too short nor too long."""

from __future__ import annotations

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.builtin.rewards.options import LengthOptions


class Length:
    """1 within the limits; beyond them `1 - excess / margin`, not below 0."""

    def __init__(self, options: LengthOptions, _context: RewardContext) -> None:
        self._options = options

    async def score(self, sample: Sample) -> Score:
        """The verdict, with the length as a part."""
        options, answer = self._options, sample.answer
        length = len(answer) if options.unit == "characters" else len(answer.split())
        too_long = length - options.at_most if options.at_most is not None else 0
        excess = max(options.at_least - length, too_long, 0)
        value = max(0.0, 1.0 - excess / options.margin) if options.margin else float(excess == 0)
        return Score(value, {options.unit: float(length)})
