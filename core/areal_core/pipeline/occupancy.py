"""How many groups under way keep the engines busy, when some of the time rewards are waited for."""

from __future__ import annotations

from math import ceil

SPARE = 2.0
"""Groups under way for each one that the engines can work on, so that none runs dry."""

LARGEST = 8.0
"""However long rewards take, not more than this many times the engines' capacity is under way."""

_MEMORY = 0.98


class Occupancy:
    """Little's law: a group that spends half its time with a reward fills an engine's place half the time."""

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size
        self._total = 0.0
        self._rewards = 0.0

    def add(self, seconds: float, reward_seconds: float) -> None:
        """A group took `seconds`; its members waited `reward_seconds` for rewards, in sum."""
        self._total = _MEMORY * self._total + seconds
        self._rewards = _MEMORY * self._rewards + min(seconds, reward_seconds / self._group_size)

    def groups(self, slots: int) -> int:
        """Groups to have under way for engines that work on `slots` completions at once."""
        generating = self._total - self._rewards
        factor = min(LARGEST, self._total / generating) if generating > 0 else LARGEST if self._total else 1.0
        return ceil(SPARE * factor * slots / self._group_size)
