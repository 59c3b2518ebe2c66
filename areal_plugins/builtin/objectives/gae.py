"""Generalized advantage estimation (Schulman et al., arXiv 1506.02438)."""

from __future__ import annotations

import numpy as np


def generalized_advantage(
    rewards: np.ndarray, values: np.ndarray, trajectory: np.ndarray, gamma: float, gae_lambda: float
) -> np.ndarray:
    """Advantages [N] of N units in order, a trajectory's units one after another (`trajectory` [N]).

    With `delta_t = r_t + gamma V_{t+1} - V_t` it is the discounted sum
    `A_t = sum_l (gamma lambda)^l delta_{t+l}` (equation 16), up to the trajectory's end. There the
    value is 0: an answer that hit the length limit has had its reward and ends like any other.
    """
    last = np.append(trajectory[1:] != trajectory[:-1], True) if len(trajectory) else np.zeros(0, dtype=bool)
    following = np.where(last, 0.0, np.roll(values, -1))
    delta = rewards + gamma * following - values
    return discounted(delta, last, gamma * gae_lambda)


def discounted(values: np.ndarray, last: np.ndarray, factor: float) -> np.ndarray:
    """`D_t = v_t + factor * D_{t+1}` [N], starting anew after each unit that is the `last` of its trajectory."""
    out = np.empty_like(values)
    carry = 0.0
    for t in range(len(values) - 1, -1, -1):
        carry = values[t] + (0.0 if last[t] else factor * carry)
        out[t] = carry
    return out
