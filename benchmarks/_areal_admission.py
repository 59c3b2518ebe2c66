"""How AReaL's own controller counts, which is looser than the bound it is given, in the place of ours.

As of its version 0.3 (`realhf/system/gserver_manager.py`, `function_executor.py` and `buffer.py` of
github.com/inclusionAI/AReaL before January 2026): a group is admitted while those that run and those that the trainer
has fetched are fewer than `(version + max_staleness + 1) * batch`; the trainer fetches only while it waits for a
batch, so that what is finished during a step counts as nothing; a batch is the oldest of whatever is finished, and
nothing is ever too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from areal_core.pipeline import train
from areal_core.pipeline.staleness import Bound, Ledger


class Lenient(Ledger):
    """A ledger that counts what is finished only once the trainer waits for a batch again."""

    def __init__(self, bound: Bound, step: int) -> None:
        super().__init__(bound, step)
        self._fetched = 0

    def room(self) -> bool:
        steps = min(self.committed + self.bound.max_staleness + 1, self.bound.last_step) - self.bound.first_step
        return self.running + self._counted() < steps * self.bound.groups

    def ready(self) -> bool:
        return self.step < self.bound.last_step and self.finished >= self.bound.groups

    def take(self) -> list[int]:
        self._fetched = self._all()
        return super().take()

    def expire(self) -> list[int]:
        return []

    def _counted(self) -> int:
        """While the batch before is trained on, `committed` is behind `step`, and nothing is fetched."""
        if self.committed >= self.step:
            self._fetched = self._all()
        return self._fetched

    def _all(self) -> int:
        return (self.step - self.bound.first_step) * self.bound.groups + self.finished


@contextmanager
def areal_admission() -> Iterator[None]:
    """Runs that begin meanwhile count as AReaL does."""
    with mock.patch.object(train, "Ledger", Lenient):
        yield
