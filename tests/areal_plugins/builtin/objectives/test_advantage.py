from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from areal_plugins.builtin.objectives.advantage import (
    centred,
    differing,
    group_relative,
    leave_one_out,
    whiten,
)

REWARDS = st.sampled_from([-1.0, 0.0, 0.1, 0.25, 0.5, 1.0, 3.0])


@st.composite
def grouped(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Rewards [S] and groups [S] of one to five members, members of groups interleaved."""
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    group = np.array(draw(st.permutations([g for g, size in enumerate(sizes) for _ in range(size)])))
    return np.array(draw(st.lists(REWARDS, min_size=len(group), max_size=len(group)))), group


def test_group_relative_on_a_hand_worked_group() -> None:
    # mean 0.5, deviations +-0.5, sample variance 4 * 0.25 / 3
    advantages = group_relative(np.array([1.0, 0.0, 0.0, 1.0]), np.zeros(4, dtype=int), "group")
    np.testing.assert_allclose(advantages, np.array([1, -1, -1, 1]) * 0.5 / math.sqrt(1 / 3), rtol=1e-15)


def test_batch_scale_divides_by_the_standard_deviation_of_all_rewards() -> None:
    rewards, group = np.array([1.0, 0.0, 4.0, 2.0]), np.array([0, 0, 1, 1])
    # mean 1.75; squares 0.5625 + 3.0625 + 5.0625 + 0.0625 = 8.75, over 3
    expected = np.array([0.5, -0.5, 1.0, -1.0]) / math.sqrt(8.75 / 3)
    np.testing.assert_allclose(group_relative(rewards, group, "batch"), expected, rtol=1e-15)


def test_leave_one_out_on_a_hand_worked_group() -> None:
    # 3 - (1 + 2) / 2, 1 - (3 + 2) / 2, 2 - (3 + 1) / 2
    advantages = leave_one_out(np.array([3.0, 1.0, 2.0]), np.zeros(3, dtype=int))
    np.testing.assert_allclose(advantages, [1.5, -1.5, 0.0], atol=1e-15)


@given(grouped())
def test_leave_one_out_is_the_reward_minus_the_mean_of_the_others(case: tuple[np.ndarray, np.ndarray]) -> None:
    rewards, group = case
    for i, advantage in enumerate(leave_one_out(rewards, group)):
        others = [r for j, r in enumerate(rewards) if group[j] == group[i] and j != i]
        expected = rewards[i] - sum(others) / len(others) if others else 0.0
        assert advantage == pytest.approx(expected, abs=1e-12)


@given(grouped(), st.sampled_from(["group", "batch", "none"]))
def test_advantages_of_a_group_sum_to_zero(case: tuple[np.ndarray, np.ndarray], scale: str) -> None:
    rewards, group = case
    sums = np.bincount(group, group_relative(rewards, group, scale))  # type: ignore[arg-type]
    np.testing.assert_allclose(sums, 0.0, atol=1e-12)


@given(grouped())
def test_group_scale_gives_unit_sample_variance_wherever_rewards_differ(case: tuple[np.ndarray, np.ndarray]) -> None:
    rewards, group = case
    advantages = group_relative(rewards, group, "group")
    for g in np.unique(group[differing(rewards, group)]):
        assert advantages[group == g].var(ddof=1) == pytest.approx(1.0)


@given(st.integers(1, 9), st.floats(-1e3, 1e3), st.sampled_from(["group", "batch", "none"]))
def test_equal_rewards_have_advantages_of_exactly_zero(size: int, reward: float, scale: str) -> None:
    rewards, group = np.full(size, reward), np.zeros(size, dtype=int)
    assert not group_relative(rewards, group, scale).any()  # type: ignore[arg-type]
    assert not leave_one_out(rewards, group).any()


def test_rewards_that_differ_in_their_last_digits_only_are_equal() -> None:
    rewards = np.array([0.3, 0.1 + 0.2, 0.3, 0.3])
    assert rewards.std() > 0
    assert not group_relative(rewards, np.zeros(4, dtype=int), "group").any()


def test_small_but_real_differences_count() -> None:
    assert group_relative(np.array([0.0, 1e-5]), np.zeros(2, dtype=int), "group")[1] == pytest.approx(math.sqrt(0.5))


def test_a_group_of_one_has_no_advantage() -> None:
    assert not centred(np.array([5.0, 1.0, 0.0]), np.array([0, 1, 1]))[0]


@given(hnp.arrays(np.float64, st.integers(1, 20), elements=st.integers(-9, 9).map(float)), st.data())
def test_whitened_values_have_mean_zero_and_deviation_one_under_the_mask(
    values: np.ndarray, data: st.DataObject
) -> None:
    mask = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(values), max_size=len(values))))
    white = whiten(values, mask)
    assert not white[mask == 0].any()
    chosen = white[mask > 0]
    if chosen.any():
        assert chosen.mean() == pytest.approx(0.0, abs=1e-12)
        assert chosen.std() == pytest.approx(1.0)
    else:
        assert len(set(values[mask > 0])) <= 1
