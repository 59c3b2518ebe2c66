from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_plugins.builtin.objectives.gae import generalized_advantage


def naive(rewards: list[float], values: list[float], gamma: float, lam: float) -> list[float]:
    """Equation 16 of arXiv 1506.02438, as a double sum over one trajectory."""
    following = [*values[1:], 0.0]
    delta = [r + gamma * v2 - v for r, v, v2 in zip(rewards, values, following, strict=True)]
    return [sum((gamma * lam) ** (s - t) * delta[s] for s in range(t, len(delta))) for t in range(len(delta))]


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.floats(0.1, 1.0),
    st.floats(0.0, 1.0),
    st.integers(0, 2**32 - 1),
)
def test_it_is_the_discounted_sum_of_temporal_differences(
    lengths: list[int], gamma: float, lam: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    trajectory = np.repeat(np.arange(len(lengths)), lengths)
    rewards, values = rng.normal(size=(2, len(trajectory)))
    expected = [
        advantage
        for s in range(len(lengths))
        for advantage in naive(list(rewards[trajectory == s]), list(values[trajectory == s]), gamma, lam)
    ]
    np.testing.assert_allclose(generalized_advantage(rewards, values, trajectory, gamma, lam), expected, atol=1e-12)


def test_lambda_one_gives_the_return_minus_the_value() -> None:
    rewards, values = np.array([0.0, 0.0, 1.0]), np.array([0.2, 0.5, 0.7])
    advantages = generalized_advantage(rewards, values, np.zeros(3, dtype=int), 1.0, 1.0)
    np.testing.assert_allclose(advantages, 1.0 - values, rtol=1e-15)


def test_a_trajectory_of_one_unit_has_its_reward_minus_its_value() -> None:
    advantages = generalized_advantage(np.array([1.0, 2.0]), np.array([0.25, 0.5]), np.array([0, 1]), 0.9, 0.5)
    np.testing.assert_allclose(advantages, [0.75, 1.5])


def test_no_units_have_no_advantages() -> None:
    nothing = np.zeros(0)
    assert generalized_advantage(nothing, nothing, nothing.astype(int), 1.0, 1.0).shape == (0,)


def test_half_lambda_on_a_hand_worked_trajectory() -> None:
    # deltas 0 + 0.9 * 1 - 0 = 0.9 and 2 - 1 = 1; A_0 = 0.9 + 0.9 * 0.5 * 1
    advantages = generalized_advantage(np.array([0.0, 2.0]), np.array([0.0, 1.0]), np.zeros(2, dtype=int), 0.9, 0.5)
    assert advantages == pytest.approx([1.35, 1.0])
