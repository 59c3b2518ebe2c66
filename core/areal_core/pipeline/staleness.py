"""How far generation runs ahead of training, and what the next batch may be. No asyncio, no arrays.

Time is counted in optimizer steps. Batch `t` turns version `t` into `t + 1`; a token of version `v`
in it lags by `t - v`, which must not exceed `max_staleness`. A group's *deadline* is therefore its
oldest token's version plus `max_staleness`: the last batch that may hold it.

Admission keeps `running + accepted <= (committed + max_staleness + 1) * batch_size` (the bound of
AReaL, Fu et al., 2025). It implies that of all groups ever admitted no more have a deadline up to
`d` than batches up to `d` can take, so that taking the earliest deadline first (Jackson, 1955)
meets every deadline: with `wait` nothing is ever too old, and nothing waits for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from heapq import heappop, heappush

from attrs import frozen

NEVER = 1 << 62
"""The deadline of what no policy drew: a demonstration does not age."""


@frozen
class Bound:
    """The rule of one stage, which trains the batches `first_step` to `last_step - 1`.

    `batch_size` is in trajectories and a multiple of `group_size`. With `drop` a batch takes
    what is finished and what is too old is given up; without, the oldest work is waited for.
    """

    batch_size: int
    group_size: int
    max_staleness: int
    first_step: int
    last_step: int
    drop: bool = False

    @property
    def groups(self) -> int:
        """Groups a batch."""
        return self.batch_size // self.group_size


class Ledger:
    """The groups that were admitted and not yet trained on, by their place in the order of submission.

    Every group of a stage has `group_size` trajectories, so that it counts groups throughout.
    """

    def __init__(self, bound: Bound, step: int) -> None:
        self.bound = bound
        self.step = step
        self.committed = step
        self._running: dict[int, int] = {}
        self._running_due: Counter[int] = Counter()
        self._finished: defaultdict[int, list[int]] = defaultdict(list)

    @property
    def running(self) -> int:
        """Groups being rolled out."""
        return len(self._running)

    @property
    def finished(self) -> int:
        """Groups that wait to be trained on."""
        return sum(map(len, self._finished.values()))

    def deadline(self, oldest: int | None) -> int:
        """The last batch that may hold a group whose oldest token is of version `oldest`."""
        return NEVER if oldest is None else oldest + self.bound.max_staleness

    def awaits(self, sequence: int) -> bool:
        """Whether the next batch cannot be taken yet, and no running group is due before this one."""
        return not self.ready() and self._running[sequence] == min(self._running_due)

    def room(self) -> bool:
        """Whether one more group may be admitted: by the bound, and because the stage needs it."""
        steps = min(self.committed + self.bound.max_staleness + 1, self.bound.last_step) - self.bound.first_step
        accepted = (self.step - self.bound.first_step) * self.bound.groups + self.finished
        return self.running + accepted < steps * self.bound.groups

    def admit(self, sequence: int, *, ages: bool = True) -> None:
        """A group starts, or starts again from nothing, under the committed version.

        Until it is finished its tokens are taken to be as old as that. Without `ages` it has no deadline.
        """
        self._run(sequence, self.committed + self.bound.max_staleness if ages else NEVER)

    def resume(self, sequence: int, oldest: int) -> bool:
        """A group goes on that was under way when a checkpoint was written, its oldest token of version `oldest`.

        False, and not counted, when the batches up to a deadline could not take all that is due by then: the bound may
        have been another.
        """
        self._run(sequence, self.deadline(oldest))
        kept = self._feasible(0, self.step - 1)
        if not kept:
            self._leave(sequence)
        return kept

    def finish(self, sequence: int, oldest: int | None) -> bool:
        """A running group is whole; `oldest` is its oldest token's version.

        False when that is older than the version it was admitted under: its engine served old weights.
        """
        deadline = self.deadline(oldest)
        kept = deadline >= self._running[sequence]
        self._leave(sequence)
        heappush(self._finished[deadline], sequence)
        return kept

    def restore(self, sequence: int, oldest: int | None) -> bool:
        """A group that was finished when a checkpoint was written, maybe under another bound; the earliest due first.

        False, and not counted, when all batches up to its deadline are full.
        """
        deadline = self.deadline(oldest)
        kept = self.finished < (deadline + 1 - self.step) * self.bound.groups
        if kept:
            heappush(self._finished[deadline], sequence)
        return kept

    def drop(self, sequence: int) -> None:
        """A running group leaves the count; another may take its place."""
        self._leave(sequence)

    def expire(self) -> list[int]:
        """Take out the finished groups that no batch may hold any more. None of them with `wait`."""
        late = sorted(deadline for deadline in self._finished if deadline < self.step)
        return [sequence for deadline in late for sequence in sorted(self._finished.pop(deadline))]

    def commit(self, step: int) -> None:
        """All engines serve version `step`."""
        self.committed = step

    def ready(self) -> bool:
        """Whether the next batch can be taken: enough is finished, and every later deadline stays within reach.

        That is, for every deadline `d` there are, after the batch, at most `(d - step)` batches'
        worth of groups with a deadline up to `d`, running ones included.
        """
        if self.step >= self.bound.last_step or self.finished < self.bound.groups:
            return False
        return self.bound.drop or self._feasible(self.bound.groups, self.step)

    def take(self) -> list[int]:
        """The next batch, in order of submission: the groups with the earliest deadlines."""
        assert self.ready()
        batch: list[int] = []
        for deadline in sorted(self._finished):
            bucket = self._finished[deadline]
            while bucket and len(batch) < self.bound.groups:
                batch.append(heappop(bucket))
            if not bucket:
                del self._finished[deadline]
        self.step += 1
        return sorted(batch)

    def _feasible(self, wanted: int, step: int) -> bool:
        """Whether the batches after `step` can take what is due by then, once `wanted` finished groups are gone."""
        left = 0
        for deadline in sorted(self._running_due.keys() | self._finished.keys()):
            finished = len(self._finished.get(deadline, ()))
            taken = min(wanted, finished)
            wanted -= taken
            left += self._running_due[deadline] + finished - taken
            if left > (deadline - step) * self.bound.groups:
                return False
        return True

    def _run(self, sequence: int, deadline: int) -> None:
        self._leave(sequence)
        self._running[sequence] = deadline
        self._running_due[deadline] += 1

    def _leave(self, sequence: int) -> None:
        deadline = self._running.pop(sequence, None)
        if deadline is None:
            return
        self._running_due[deadline] -= 1
        if not self._running_due[deadline]:
            del self._running_due[deadline]
