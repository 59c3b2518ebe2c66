"""The reward `regex`: the answer matches a pattern."""

from __future__ import annotations

import re

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.builtin.rewards.options import RegexOptions


class Regex:
    """Searches the answer, or matches the whole of it."""

    def __init__(self, options: RegexOptions, _context: RewardContext) -> None:
        pattern = re.compile(options.pattern, re.DOTALL | (re.IGNORECASE if options.casefold else 0))
        self._match = pattern.fullmatch if options.whole else pattern.search
        self._options = options

    async def score(self, sample: Sample) -> Score:
        """1 or 0."""
        match = self._match(sample.answer)
        return Score(float(match is not None and (not self._options.compare or self._same(match, sample.task.answer))))

    def _same(self, match: re.Match[str], wanted: str) -> bool:
        found = (match[1] if match.re.groups else match[0]) or ""
        pair = found.strip(), wanted.strip()
        return pair[0].casefold() == pair[1].casefold() if self._options.casefold else pair[0] == pair[1]
