from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.errors import InputError
from areal_core.pipeline.tasks import Drawn, Permutation, Source, TaskSampler, held_out, rollout_seed

ENDLESS = Source("endless", 1.0, None)
SMALL = Source("small", 1.0, 5)


def draw(sampler: TaskSampler, count: int) -> list:
    return [sampler.draw() for _ in range(count)]


@given(size=st.integers(1, 300), key=st.integers(0, 1 << 40))
def test_a_permutation_visits_everything_once(size, key):
    permutation = Permutation(size, key)
    assert sorted(permutation(index) for index in range(size)) == list(range(size))


def test_a_permutation_of_any_size_costs_nothing_to_make():
    assert 0 <= Permutation(10**15, 1)(10**15 - 1) < 10**15


def test_different_keys_give_different_orders():
    orders = {tuple(Permutation(8, key)(index) for index in range(8)) for key in range(20)}
    assert len(orders) > 10


def test_groups_are_numbered_in_order():
    assert [sequence for sequence, _ in draw(TaskSampler(0, [ENDLESS]), 4)] == [0, 1, 2, 3]


def test_an_endless_environment_gives_its_tasks_in_order():
    assert [task.index for _, task in draw(TaskSampler(0, [ENDLESS]), 4)] == [0, 1, 2, 3]


def test_every_epoch_is_all_tasks_in_another_order():
    indices = [task.index for _, task in draw(TaskSampler(1, [SMALL]), 50)]
    epochs = [tuple(indices[start : start + 5]) for start in range(0, 50, 5)]
    assert all(sorted(epoch) == [0, 1, 2, 3, 4] for epoch in epochs)
    assert len(set(epochs)) > 3


@given(seed=st.integers(0, 1000), cut=st.integers(0, 30))
def test_a_sampler_made_from_the_counters_goes_on_where_the_other_was(seed, cut):
    sources = [SMALL, Source("other", 0.3, 7), ENDLESS]
    whole = draw(TaskSampler(seed, sources), 40)
    first = TaskSampler(seed, sources)
    draw(first, cut)
    assert draw(TaskSampler(seed, sources, drawn=first.drawn), 40 - cut) == whole[cut:]


def test_environments_are_drawn_by_weight():
    sampler = TaskSampler(5, [Source("often", 3.0, None), Source("seldom", 1.0, None)])
    counts = Counter(task.environment for _, task in draw(sampler, 4000))
    assert counts["often"] == pytest.approx(3000, abs=120)


def test_an_environment_of_no_weight_is_never_drawn():
    sampler = TaskSampler(5, [ENDLESS, Source("only to evaluate", 0.0, 0)])
    assert {task.environment for _, task in draw(sampler, 100)} == {"endless"}


def test_an_environment_that_joins_later_starts_at_its_first_task():
    sampler = TaskSampler(0, [Source("new", 1.0, None)], drawn=Drawn(7, {"old": 7}))
    sequence, task = sampler.draw()
    assert (sequence, task.environment, task.index) == (7, "new", 0)


def test_an_empty_split_is_named():
    with pytest.raises(InputError, match="environment void: has no tasks in its split 'train'"):
        TaskSampler(0, [Source("void", 1.0, 0)])


def test_weights_that_are_all_zero_are_an_error():
    with pytest.raises(InputError, match="none has a weight above 0"):
        TaskSampler(0, [Source("a", 0.0, 3)])


def test_held_out_tasks_are_the_same_every_time_and_none_twice():
    source = Source("s", 1.0, 100)
    tasks = held_out(3, source, "test", 40)
    assert tasks == held_out(3, source, "test", 40)
    assert len({task.index for task in tasks}) == 40


def test_held_out_tasks_are_all_there_are_where_there_are_few():
    assert sorted(task.index for task in held_out(3, SMALL, "test", 40)) == [0, 1, 2, 3, 4]


def test_rollouts_have_seeds_of_their_own():
    assert len({rollout_seed(0, sequence) for sequence in range(-500, 500)}) == 1000
