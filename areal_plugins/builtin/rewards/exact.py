"""The reward `exact`: the answer is the task's answer."""

from __future__ import annotations

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.builtin.rewards.extract import EXTRACTORS, number
from areal_plugins.builtin.rewards.options import ExactOptions


class Exact:
    """Compares texts without white space at their ends, or the numbers they are."""

    def __init__(self, options: ExactOptions, _context: RewardContext) -> None:
        self._extract, self._options = EXTRACTORS[options.extract], options

    async def score(self, sample: Sample) -> Score:
        """1 or 0. Raises `ValueError` where `number` is asked for and the task's answer is none."""
        found = self._extract(sample.answer)
        return Score(float(found is not None and self._same(found, sample.task.answer.strip())))

    def _same(self, found: str, wanted: str) -> bool:
        if self._options.number:
            gold = number(wanted)
            if gold is None:
                raise ValueError(f"the task's answer {wanted!r} is no number")
            return number(found) == gold
        return found.casefold() == wanted.casefold() if self._options.casefold else found == wanted
