"""What was trained on and dropped, as far as the run goes back to it: the committed history."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from attrs import define, field

from areal_core.data import TaskRef, WeightVersion

Key = tuple[TaskRef, int]
"""A task, and the epoch of the sampler in which it was drawn."""


DEPTH = 250
"""Steps."""


@define
class History:
    """What was trained on, as a resume sees it: the groups' `sequences` by step, counted from 1.

    `steps` is the step of each key that was trained on, `forks` where each incarnation of the trainer began. Of
    both, and of the sequences, the last `DEPTH` steps are known, which is more than any epoch that has an end.
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
        if len(self.sequences) > DEPTH + 50:
            self._forget(step - DEPTH)

    def drop(self, step: int, groups: int) -> None:
        """Groups were dropped up to `step`."""
        self._dropped.append((step, groups + (self._dropped[-1][1] if self._dropped else 0)))

    def rewind(self, step: int) -> None:
        """Forget what came after `step`."""
        self.sequences = {done: groups for done, groups in self.sequences.items() if done <= step}
        self.steps = {key: done for key, done in self.steps.items() if done <= step}
        del self._trained[step + 1 :]
        self._dropped = [entry for entry in self._dropped if entry[0] <= step]

    @property
    def last(self) -> int:
        """The last step."""
        return len(self._trained) - 1

    def trained(self, step: int) -> int:
        """Groups trained on up to `step`."""
        return self._trained[min(step, len(self._trained) - 1)]

    def given_up(self, step: int) -> int:
        """Groups dropped up to `step`."""
        index = bisect_right(self._dropped, step, key=lambda entry: entry[0])
        return self._dropped[index - 1][1] if index else 0

    def _forget(self, until: int) -> None:
        """What was trained on in the steps up to `until`."""
        self.sequences = {step: groups for step, groups in self.sequences.items() if step > until}
        self.steps = {key: step for key, step in self.steps.items() if step > until}

    def origin(self, version: WeightVersion, incarnation: int) -> bool:
        """Whether the trainer's `incarnation` goes on from `version`."""
        forks = [step for number, step in self.forks.items() if version.incarnation < number <= incarnation]
        return version.incarnation <= incarnation and version.step <= min(forks, default=version.step)
