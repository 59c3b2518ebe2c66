"""What was trained on and dropped, as far as the run goes back to it: the committed history."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from attrs import define, field

from areal_core.data import TaskRef, WeightVersion

Key = tuple[TaskRef, int]
"""A task, and the epoch of the sampler in which it was drawn."""


@define
class History:
    """What was trained on, as a resume sees it: the groups' `sequences` by step, counted from 1.

    `steps` is the step of each key that was trained on, `forks` where each incarnation of the trainer began.
    """

    sequences: dict[int, tuple[int, ...]] = field(factory=dict)
    steps: dict[Key, int] = field(factory=dict)
    forks: dict[int, int] = field(factory=dict)
    _trained: list[int] = field(factory=lambda: [0])
    _dropped: list[tuple[int, int]] = field(factory=list)

    def add(self, step: int, groups: Mapping[int, Key]) -> None:
        """Step `step` was trained on these groups, by sequence."""
        self.sequences[step] = tuple(groups)
        self.steps.update(dict.fromkeys(groups.values(), step))
        self._trained.append(self._trained[-1] + len(groups))

    def drop(self, step: int, groups: int) -> None:
        """Groups were dropped up to `step`."""
        self._dropped.append((step, groups + (self._dropped[-1][1] if self._dropped else 0)))

    def rewind(self, step: int) -> None:
        """Forget what came after `step`."""
        self.sequences = {done: groups for done, groups in self.sequences.items() if done <= step}
        self.steps = {key: done for key, done in self.steps.items() if done <= step}
        del self._trained[step + 1 :]
        self._dropped = [entry for entry in self._dropped if entry[0] <= step]

    def trained(self, step: int) -> int:
        """Groups trained on up to `step`."""
        return self._trained[min(step, len(self._trained) - 1)]

    def given_up(self, step: int) -> int:
        """Groups dropped up to `step`."""
        index = bisect_right(self._dropped, step, key=lambda entry: entry[0])
        return self._dropped[index - 1][1] if index else 0

    def origin(self, version: WeightVersion, incarnation: int) -> bool:
        """Whether the trainer's `incarnation` goes on from `version`."""
        forks = [step for number, step in self.forks.items() if version.incarnation < number <= incarnation]
        return version.incarnation <= incarnation and version.step <= min(forks, default=version.step)
