import numpy as np
import pytest
from attrs import evolve

from areal_plugins import InputError
from areal_plugins.builtin.trainer.units import flatten


def test_prompts_are_left_out_of_the_arrays(tools):
    groups = [[tools.trajectory([1, 2], [3, 4, 5], reward=0.5, mask=[1, 0, 1], step=1, finish="length")]]
    units = flatten(tools.batch(groups, step=3))
    arrays = units.arrays
    assert arrays.mask.tolist() == [1, 0, 1]
    assert arrays.lag.tolist() == [2, 0, 2]
    assert arrays.behaviour.tolist() == [-1.5, 0, -1.5]
    assert arrays.rewards.tolist() == [0.5]
    assert arrays.truncated.tolist() == [True]
    assert units.targets.tolist() == [3, 5]


def test_what_follows_the_last_trained_unit_need_not_be_read(tools):
    units = flatten(tools.batch([[tools.trajectory([1, 2], [3, 4, 5], mask=[1, 0, 0])]]))
    assert units.needed.tolist() == [2]


def test_a_trajectory_without_trained_units_needs_nothing(tools):
    units = flatten(tools.batch([[tools.trajectory([1], [2], mask=[0]), tools.trajectory([1], [2])]]))
    assert units.needed.tolist() == [0, 1]
    assert units.lengths.tolist() == [0, 1]


def test_demonstrations_have_no_lag(tools):
    demonstration = tools.trajectory([1], [2, 3])
    demonstration.columns["versions"][:] = -1
    units = flatten(tools.batch([[demonstration]], step=9))
    assert units.arrays.lag.tolist() == [0, 0]
    assert units.drawn.tolist() == [False, False]


def test_lag_is_told_by_the_step_whatever_the_incarnation(tools):
    trajectory = tools.trajectory([1], [2])
    trajectory.columns["versions"][1] = (5 << 40) | 7
    assert flatten(tools.batch([[trajectory]], step=9)).arrays.lag.tolist() == [2]


def test_groups_are_numbered_in_order(tools):
    batch = tools.batch([[tools.trajectory([1], [2])] * 2, [tools.trajectory([1], [2])]])
    units = flatten(batch)
    assert units.arrays.group.tolist() == [0, 0, 1]
    assert [m.tolist() for m in units.members] == [[0, 1], [2]]


def test_an_empty_batch_is_refused(tools):
    with pytest.raises(InputError, match="no trajectories"):
        flatten(tools.batch([]))


def test_a_missing_column_is_named(tools):
    trajectory = tools.trajectory([1], [2])
    del trajectory.columns["versions"]
    with pytest.raises(InputError, match="no column 'versions'"):
        flatten(tools.batch([[trajectory]]))


def test_a_column_of_another_length_is_named(tools):
    trajectory = tools.trajectory([1], [2], member=4)
    trajectory.columns["logprobs"] = np.zeros(5, dtype=np.float32)
    with pytest.raises(InputError, match=r"trajectory 0 \(member 4\): column 'logprobs' has 5 entries for 2 tokens"):
        flatten(tools.batch([[trajectory]]))


def test_a_trained_prompt_is_refused(tools):
    trajectory = evolve(tools.trajectory([1, 2], [3, 4]), prompt_length=3)
    with pytest.raises(InputError, match="a unit of the prompt"):
        flatten(tools.batch([[trajectory]]))


def test_a_trained_first_unit_is_refused(tools):
    trajectory = evolve(tools.trajectory([], [3, 4]), prompt_length=0)
    with pytest.raises(InputError, match="nothing before it"):
        flatten(tools.batch([[trajectory]]))
