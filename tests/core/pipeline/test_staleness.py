from __future__ import annotations

import random

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_core.pipeline.staleness import Bound, Ledger

bounds = st.builds(
    lambda groups, size, staleness, first, steps, drop: Bound(
        groups * size, size, staleness, first, first + steps, drop
    ),
    groups=st.integers(1, 5),
    size=st.integers(1, 3),
    staleness=st.integers(0, 4),
    first=st.integers(0, 2),
    steps=st.integers(1, 12),
    drop=st.booleans(),
)


class World:
    """Engines and a trainer that do anything they may, in any order; what is trained is kept."""

    def __init__(self, bound: Bound, seed: int, drops: bool) -> None:
        self.bound, self.random, self.drops = bound, random.Random(seed), drops
        self.ledger = Ledger(bound, bound.first_step)
        self.running: dict[int, int] = {}
        self.finished: dict[int, int] = {}
        self.submitted = 0
        self.lags: list[int] = []
        self.batches: list[list[int]] = []

    def run(self) -> None:
        while self.ledger.step < self.bound.last_step:
            assert self.random.choice(self._moves())() is not False
            self._check()

    def move(self, times: int) -> None:
        while times and self.ledger.step < self.bound.last_step - 1:
            self.random.choice(self._moves())()
            times -= 1

    def resume(self, bound: Bound) -> int:
        """Go on under `bound`, as from a checkpoint; the groups that were given up."""
        finished, running = self.finished, self.running
        held = len(finished) + len(running)
        self.bound, self.ledger = bound, Ledger(bound, self.ledger.step)
        due = sorted(finished, key=lambda sequence: (finished[sequence], sequence))
        self.finished = {sequence: finished[sequence] for sequence in due if self._restore(sequence)}
        self.running, self.lags, self.batches = {}, [], []
        for sequence in sorted(running):
            if self.ledger.room():
                self._restart(sequence, running[sequence])
        return held - len(self.finished) - len(self.running)

    def _restart(self, sequence: int, oldest: int) -> None:
        """Go on with what was drawn, or begin anew."""
        if self.random.random() < 0.3:
            self.ledger.admit(sequence)
            self.running[sequence] = self.ledger.committed
        elif self.ledger.resume(sequence, oldest):
            self.running[sequence] = oldest

    def _restore(self, sequence: int) -> bool:
        return self.ledger.restore(sequence, self.finished[sequence])

    def _moves(self) -> list:
        """Everything that can happen now; an empty list would be a deadlock."""
        moves = []
        if self.ledger.room():
            moves.append(self._admit)
        if self.running:
            moves.append(self._finish)
            if self.drops:
                moves.append(self._drop)
        if self.ledger.committed < self.ledger.step:
            moves.append(self._commit)
        if self.ledger.ready():
            moves.append(self._take)
        assert moves, "deadlock"
        return moves

    def _admit(self) -> None:
        self.ledger.admit(self.submitted)
        self.running[self.submitted] = self.ledger.committed
        self.submitted += 1

    def _finish(self) -> None:
        sequence = self.random.choice(list(self.running))
        oldest = self.random.randint(self.running.pop(sequence), self.ledger.committed)
        assert self.ledger.finish(sequence, oldest)
        self.finished[sequence] = oldest
        self._expire()

    def _drop(self) -> None:
        sequence = self.random.choice(list(self.running))
        del self.running[sequence]
        self.ledger.drop(sequence)

    def _commit(self) -> None:
        self.ledger.commit(self.ledger.committed + 1)

    def _take(self) -> None:
        step, batch = self.ledger.step, self.ledger.take()
        self.lags += [step - self.finished.pop(sequence) for sequence in batch]
        self.batches.append(batch)
        self._expire()

    def _expire(self) -> None:
        for sequence in self.ledger.expire():
            assert self.bound.drop, "waiting never lets anything get too old"
            del self.finished[sequence]

    def _check(self) -> None:
        accepted = (self.ledger.step - self.bound.first_step) * self.bound.batch_size
        accepted += len(self.finished) * self.bound.group_size
        running = len(self.running) * self.bound.group_size
        allowed = self.ledger.committed - self.bound.first_step + self.bound.max_staleness + 1
        assert running + accepted <= allowed * self.bound.batch_size
        assert (self.ledger.running, self.ledger.finished) == (len(self.running), len(self.finished))


@settings(max_examples=300, deadline=None)
@given(bound=bounds, seed=st.integers(0, 1 << 30), drops=st.booleans())
def test_nothing_is_trained_on_beyond_the_bound_and_nothing_waits_for_ever(bound, seed, drops):
    world = World(bound, seed, drops)
    world.run()
    assert len(world.batches) == bound.last_step - bound.first_step
    assert all(len(batch) == bound.groups for batch in world.batches)
    assert all(0 <= lag <= bound.max_staleness for lag in world.lags)


@settings(max_examples=300, deadline=None)
@given(bound=bounds, other=bounds, seed=st.integers(0, 1 << 30), moves=st.integers(0, 60))
def test_a_resume_under_any_other_bound_keeps_it_and_does_not_wait_for_ever(bound, other, seed, moves):
    world = World(bound, seed, drops=False)
    world.move(moves)
    step = world.ledger.step
    world.resume(evolve(other, first_step=bound.first_step, last_step=bound.last_step))
    world.run()
    assert len(world.batches) == bound.last_step - step
    assert all(0 <= lag <= other.max_staleness for lag in world.lags)


@settings(max_examples=100, deadline=None)
@given(bound=bounds, seed=st.integers(0, 1 << 30), moves=st.integers(0, 60))
def test_a_resume_under_the_same_bound_gives_up_nothing_where_work_is_waited_for(bound, seed, moves):
    world = World(evolve(bound, drop=False), seed, drops=True)
    world.move(moves)
    assert world.resume(world.bound) == 0


@settings(max_examples=50, deadline=None)
@given(bound=bounds, seed=st.integers(0, 1 << 30))
def test_without_drops_every_group_that_was_submitted_is_trained_on(bound, seed):
    world = World(Bound(bound.batch_size, bound.group_size, bound.max_staleness, 0, 8), seed, drops=False)
    world.run()
    assert sorted(sequence for batch in world.batches for sequence in batch) == list(range(world.submitted))


@given(seed=st.integers(0, 1 << 30))
def test_no_staleness_is_exact_on_policy_training(seed):
    world = World(Bound(8, 2, 0, 0, 10), seed, drops=False)
    world.run()
    assert world.batches == [list(range(4 * step, 4 * step + 4)) for step in range(10)]
    assert set(world.lags) == {0}


def make(**changes: int) -> Ledger:
    return Ledger(
        Bound(**{"batch_size": 4, "group_size": 2, "max_staleness": 1, "first_step": 0, "last_step": 9, **changes}), 0
    )


def admit(ledger: Ledger, *sequences: int) -> None:
    for sequence in sequences:
        ledger.admit(sequence)


def finish(ledger: Ledger, *sequences: int) -> None:
    for sequence in sequences:
        ledger.finish(sequence, ledger.committed)


def test_admission_stops_at_the_bound():
    ledger = make()
    admit(ledger, 0, 1, 2)
    assert ledger.room()
    admit(ledger, 3)
    assert not ledger.room()


def test_a_commit_makes_room_for_a_batch():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    ledger.commit(1)
    admit(ledger, 4, 5)
    assert not ledger.room()


def test_no_more_is_admitted_than_the_stage_needs():
    ledger = make(max_staleness=8, last_step=2)
    admit(ledger, 0, 1, 2, 3)
    assert not ledger.room()


def test_what_is_dropped_leaves_the_count():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    ledger.drop(2)
    assert ledger.room()


def test_a_finished_group_still_counts():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, 0, 1, 2, 3)
    assert not ledger.room()


def test_later_work_may_overtake_while_the_older_can_still_be_in_time():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, 2, 3)
    assert ledger.ready()
    assert ledger.take() == [2, 3]


def test_later_work_may_not_overtake_what_would_then_be_too_old():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, 1, 2)
    ledger.take()
    ledger.commit(1)
    admit(ledger, 4, 5)
    finish(ledger, 3, 4, 5)
    assert not ledger.ready(), "group 0 must be in this batch"
    ledger.finish(0, 0)
    assert ledger.take() == [0, 3]


def test_a_group_of_newer_tokens_than_it_was_admitted_under_leaves_more_time():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, 1, 2)
    ledger.take()
    ledger.commit(1)
    admit(ledger, 4, 5)
    ledger.finish(0, 1)
    finish(ledger, 4)
    assert not ledger.ready(), "group 3 may still turn out to be old"
    ledger.finish(3, 1)
    assert ledger.ready()


def test_a_group_that_is_rolled_out_anew_is_as_old_as_the_version_of_its_new_start():
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, 1, 2)
    ledger.take()
    ledger.commit(1)
    ledger.admit(0)
    assert ledger.running == 2
    assert ledger.finish(0, 1)


def test_tokens_older_than_the_version_at_admission_are_noticed():
    ledger = make()
    ledger.commit(1)
    ledger.admit(0)
    assert not ledger.finish(0, 0)


def test_demonstrations_do_not_age():
    ledger = make(max_staleness=0)
    ledger.admit(0, ages=False)
    ledger.admit(1, ages=False)
    ledger.finish(0, None)
    ledger.finish(1, None)
    assert ledger.take() == [0, 1]


def test_dropping_takes_what_is_finished_and_gives_up_what_is_too_old():
    ledger = make(drop=True)
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, 2, 3)
    ledger.take()
    ledger.commit(1)
    admit(ledger, 4, 5)
    finish(ledger, 4, 5)
    assert ledger.take() == [4, 5]
    ledger.finish(0, 0)
    assert ledger.expire() == [0]
    assert ledger.finished == 0


@pytest.mark.parametrize("finished", [0, 1])
def test_a_batch_is_never_partial(finished):
    ledger = make()
    admit(ledger, 0, 1, 2, 3)
    finish(ledger, *range(finished))
    assert not ledger.ready()
