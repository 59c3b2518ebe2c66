"""Finished groups, until a batch takes them or they are too old."""

from __future__ import annotations

from collections.abc import Iterable

from areal_core.data import Batch, TrajectoryGroup
from areal_core.errors import ComponentError
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.metrics import Tally
from areal_core.pipeline.staleness import Ledger


class Buffer:
    """Holds what the ledger counts as finished."""

    def __init__(self, ledger: Ledger, condition: Condition, tally: Tally) -> None:
        self._ledger, self._condition, self._tally = ledger, condition, tally
        self._groups: dict[int, TrajectoryGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def groups(self) -> tuple[TrajectoryGroup, ...]:
        """All of them, in order of submission."""
        return tuple(self._groups[sequence] for sequence in sorted(self._groups))

    def add(self, group: TrajectoryGroup) -> None:
        """A group has come back.

        Raises:
            ComponentError: its engine drew tokens with weights older than those all engines had.

        """
        if not self._ledger.finish(group.sequence, _step(group)):
            problem = f"{group.task} has tokens of version {group.oldest}, which every engine had replaced before"
            raise ComponentError("engine", f"generate group {group.sequence}", problem)
        self._groups[group.sequence] = group
        self._expire()

    def restore(self, groups: Iterable[TrajectoryGroup]) -> None:
        """Take up what was here when the checkpoint was written.

        What no longer has the size of a group, or would be too old before a batch has a place for it, is given up:
        the bound may have been another then.
        """
        for group in sorted(groups, key=self._due):
            if len(group.trajectories) != self._ledger.bound.group_size:
                self._tally.drop("resized", len(group.trajectories), group)
            elif not self._ledger.restore(group.sequence, _step(group)):
                self._tally.drop("stale", len(group.trajectories), group)
            else:
                self._groups[group.sequence] = group

    async def take(self) -> Batch:
        """The next batch, once it can be had without endangering a later one."""
        await self._condition.until(self._ledger.ready)
        step = self._ledger.step
        batch = Batch(step, tuple(self._groups.pop(sequence) for sequence in self._ledger.take()))
        self._expire()
        self._condition.changed()
        return batch

    def _due(self, group: TrajectoryGroup) -> tuple[int, int]:
        return self._ledger.deadline(_step(group)), group.sequence

    def _expire(self) -> None:
        for sequence in self._ledger.expire():
            group = self._groups.pop(sequence)
            self._tally.drop("stale", len(group.trajectories), group)


def _step(group: TrajectoryGroup) -> int | None:
    oldest = group.oldest
    return None if oldest is None else oldest.step
