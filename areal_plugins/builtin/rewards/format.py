"""The reward `format`: the answer is made of the wanted elements and nothing else."""

from __future__ import annotations

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.builtin.rewards.options import FormatOptions


class Format:
    """`<think>...</think><answer>...</answer>`, white space between them allowed, no tag within another."""

    def __init__(self, options: FormatOptions, _context: RewardContext) -> None:
        self._tags = options.tags
        self._marks = tuple(mark for tag in options.tags for mark in (f"<{tag}>", f"</{tag}>"))

    async def score(self, sample: Sample) -> Score:
        """1 or 0."""
        rest: str | None = sample.answer.strip()
        for tag in self._tags:
            rest = self._after(rest, tag) if rest is not None else None
        return Score(float(rest == ""))

    def _after(self, text: str, tag: str) -> str | None:
        """What follows the element that `text` begins with; None where it does not."""
        opening, closing = f"<{tag}>", f"</{tag}>"
        inside, closed, rest = text.removeprefix(opening).partition(closing)
        well_formed = text.startswith(opening) and closed and not any(mark in inside for mark in self._marks)
        return rest.lstrip() if well_formed else None
