import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from areal_plugins.builtin.trainer import packing
from areal_plugins.builtin.trainer.packing import Layout, pack, ranges, split
from areal_plugins.builtin.trainer.parts import parts
from areal_plugins.builtin.trainer.units import flatten

SEEDS = st.integers(0, 10**6)
BUDGETS = st.integers(1, 80)


def everything(units):
    return np.ones(len(units.starts), dtype=bool)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SEEDS, BUDGETS)
def test_every_trained_unit_is_predicted_once_from_its_own_context(tools, seed, budget):
    units = flatten(tools.random_batch(np.random.default_rng(seed)))
    found = []
    for pieces in split(units, everything(units), budget):
        packed = pack(units, pieces)
        contexts = read_back(packed)
        for predict, target, unit in zip(packed.predict, packed.targets, packed.units, strict=True):
            found.append(unit)
            at = int(np.flatnonzero(units.trained == unit)[0])
            own = units.tokens[units.starts[units.owner[at]] :][: units.position[at] + 1]
            assert contexts[predict] == own[:-1].tolist()
            assert target == own[-1]
    assert sorted(found) == units.trained.tolist()


def read_back(packed):
    """For each packed token the sequence that ends in it, from the layout alone."""
    contexts = {}
    for g, common in enumerate(packed.layout.common):
        first = packed.layout.offsets[g, 0]
        head = packed.tokens[first : first + common].tolist()
        contexts |= {first + i: head[: i + 1] for i in range(common)}
        for m, size in enumerate(packed.layout.rest[g]):
            begin = packed.layout.offsets[g, 1 + m]
            own = packed.tokens[begin : begin + size].tolist()
            contexts |= {begin + i: head + own[: i + 1] for i in range(size)}
    assert all(packed.positions[at] == len(context) - 1 for at, context in contexts.items())
    return contexts


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SEEDS, BUDGETS)
def test_a_micro_batch_keeps_to_the_budget_or_is_one_trajectory(tools, seed, budget):
    units = flatten(tools.random_batch(np.random.default_rng(seed)))
    for pieces in split(units, everything(units), budget):
        size = len(pack(units, pieces).tokens)
        assert size == sum(piece.size for piece in pieces)
        assert size <= budget or sum(len(piece.members) for piece in pieces) == 1


def test_a_group_that_fits_is_not_taken_apart(tools):
    units = flatten(tools.random_batch(np.random.default_rng(0), groups=4, members=4))
    whole = split(units, everything(units), 10**6)
    largest = max(piece.size for pieces in whole for piece in pieces)
    assert all(len(p.members) == 4 for pieces in split(units, everything(units), largest) for p in pieces)


def test_parts_of_a_split_group_each_have_the_common_tokens(tools):
    group = [tools.trajectory([1, 2, 3], [m, 5, 6, 7], member=m) for m in range(4)]
    units = flatten(tools.batch([group]))
    batches = split(units, everything(units), 10)
    assert [[(p.common, len(p.members), p.size) for p in pieces] for pieces in batches] == [[(3, 2, 9)], [(3, 2, 9)]]


def test_groups_without_a_difference_in_reward_come_last_and_apart(tools, monkeypatch):
    monkeypatch.setattr(packing, "_WORTH_APART", 10)

    def group(rewards):
        return [tools.trajectory([1], [m, 2, 3], member=m, reward=r) for m, r in enumerate(rewards)]

    units = flatten(tools.batch([group([1, 1]), group([0, 1]), group([0, 0])]))
    batches = split(units, everything(units), 10**6)
    assert [[p.members.tolist() for p in pieces] for pieces in batches] == [[[2, 3]], [[0, 1], [4, 5]]]


def test_few_silent_tokens_are_not_worth_a_micro_batch(tools):
    def group(rewards):
        return [tools.trajectory([1], [m, 2, 3], member=m, reward=r) for m, r in enumerate(rewards)]

    units = flatten(tools.batch([group([1, 1]), group([0, 1])]))
    assert len(split(units, everything(units), 1000)) == 1


def test_only_what_is_chosen_is_packed(tools):
    units = flatten(tools.random_batch(np.random.default_rng(0), groups=2, members=2))
    chosen = np.array([True, False, False, True])
    found = np.concatenate([pack(units, pieces).units for pieces in split(units, chosen, 100)])
    assert set(units.owner[np.isin(units.trained, found)]) == {0, 3}


def test_ranges_lie_end_to_end():
    assert ranges(np.array([5, 0, 7]), np.array([2, 0, 3])).tolist() == [5, 6, 7, 8, 9]


def test_segments_begin_where_the_one_before_ends():
    layout = Layout(np.array([2, 1]), np.array([[3, 0], [1, 4]]))
    assert layout.offsets.tolist() == [[0, 2, 5], [5, 6, 7]]


@pytest.mark.parametrize(("groups", "members", "updates"), [(4, 3, 2), (5, 2, 3), (2, 4, 4), (1, 2, 5)])
def test_parts_share_out_all_trajectories(tools, groups, members, updates):
    units = flatten(tools.random_batch(np.random.default_rng(0), groups=groups, members=members))
    made = parts(units, updates, 10**6)
    assert len(made) == min(updates, groups * members)
    assert sum(part.share for part in made) == pytest.approx(1)
    found = np.concatenate([packed.units for part in made for packed in part.packed])
    assert sorted(found) == units.trained.tolist()


def test_parts_keep_groups_whole_where_there_are_enough(tools):
    units = flatten(tools.random_batch(np.random.default_rng(0), groups=4, members=3))
    for part in parts(units, 2, 10**6):
        owners = set(units.owner[np.isin(units.trained, np.concatenate([p.units for p in part.packed]))])
        assert owners in ({0, 1, 2, 3, 4, 5}, {6, 7, 8, 9, 10, 11})
