"""Every objective's loss and gradient against its paper's formula, written out as loops over tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from statistics import fmean, pstdev, stdev
from typing import Any

import numpy as np
import pytest

from areal_core.batch import BatchArrays
from areal_core.protocols import Objective

MASKS = [[1, 1, 1], [1], [1, 0, 1, 1], [1, 1], [1, 1, 1, 1, 1]]
REWARDS = [1.0, 0.0, 0.5, 0.0, 2.0]
GROUP = [0, 0, 1, 1, 1]


@pytest.fixture
def arrays(batch: Callable[..., BatchArrays]) -> BatchArrays:
    return batch(REWARDS, GROUP, MASKS, seed=7)


@pytest.fixture
def moved(arrays: BatchArrays, policies: Callable[..., Any]) -> Any:
    return policies(arrays, seed=8)


def tokens(arrays: BatchArrays) -> Iterator[tuple[int, int]]:
    """Trajectory and place of each drawn token."""
    for t, (s, m) in enumerate(zip(arrays.trajectory, arrays.mask, strict=True)):
        if m:
            yield int(s), t


def lengths() -> list[int]:
    return [sum(mask) for mask in MASKS]


def relative(rewards: list[float], std: bool = True) -> list[float]:
    """(r - mean) / std in its group."""
    out = []
    for r, g in zip(rewards, GROUP, strict=True):
        members = [other for other, h in zip(rewards, GROUP, strict=True) if h == g]
        out.append((r - fmean(members)) / (stdev(members) if std else 1.0))
    return out


def ppo_token(u: float, w: float, advantage: float, low: float, high: float) -> tuple[float, float]:
    """PPO's clipped term of a token, and its derivative by the current log-probability."""
    bound = min(max(u, 1 - low), 1 + high)
    if u * advantage <= bound * advantage:
        return -w * u * advantage, -w * u * advantage
    return -w * bound * advantage, 0.0


def clipped_loss(
    arrays: BatchArrays, moved: Any, advantages: dict[int, float], weights: list[float], low: float, high: float
) -> tuple[float, np.ndarray]:
    """Decoupled PPO over all tokens; `advantages` by token, `weights` by trajectory."""
    loss, gradient = 0.0, np.zeros(len(arrays.mask))
    for s, t in tokens(arrays):
        u = math.exp(moved.logp[t] - moved.proximal[t])
        w = min(math.exp(moved.proximal[t] - arrays.behaviour[t]), 5.0)
        value, slope = ppo_token(u, w, advantages[t], low, high)
        loss += weights[s] * value
        gradient[t] += weights[s] * slope
    return loss, gradient


def agree(result: Any, loss: float, gradient: np.ndarray) -> None:
    assert result.loss == pytest.approx(loss, rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(result.logp, gradient, rtol=1e-11, atol=1e-14)


def of_trajectory(arrays: BatchArrays, advantages: list[float]) -> dict[int, float]:
    return {t: advantages[s] for s, t in tokens(arrays)}


def test_grpo(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    advantages = of_trajectory(arrays, relative(REWARDS))
    weights = [1 / (5 * n) for n in lengths()]
    agree(outcome(objective("grpo"), arrays, moved), *clipped_loss(arrays, moved, advantages, weights, 0.2, 0.2))


def test_dr_grpo(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    advantages = of_trajectory(arrays, relative(REWARDS, std=False))
    weights = [1 / (5 * 8)] * 5  # max_new_tokens is 8
    agree(outcome(objective("dr-grpo"), arrays, moved), *clipped_loss(arrays, moved, advantages, weights, 0.2, 0.2))


def test_dapo_with_overlong_shaping(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    # Limit 8, buffer 6: no penalty up to 2 tokens, then a sixth of it for every further one.
    shaped = [r - 0.5 * max(0, n - 2) / 6 for r, n in zip(REWARDS, lengths(), strict=True)]
    advantages = of_trajectory(arrays, relative(shaped))
    weights = [1 / sum(lengths())] * 5
    result = outcome(objective("dapo", overlong_buffer=6, overlong_penalty=0.5), arrays, moved)
    agree(result, *clipped_loss(arrays, moved, advantages, weights, 0.2, 0.28))


def test_rloo(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    advantages = []
    for i, r in enumerate(REWARDS):
        others = [q for j, q in enumerate(REWARDS) if GROUP[j] == GROUP[i] and j != i]
        advantages.append(r - fmean(others))
    expected = clipped_loss(arrays, moved, of_trajectory(arrays, advantages), [1 / 5] * 5, 0.2, 0.2)
    agree(outcome(objective("rloo"), arrays, moved), *expected)


def test_rloo_on_policy_is_the_reinforce_gradient_of_whole_answers(
    arrays: BatchArrays, policies: Callable[..., Any], objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    result = outcome(objective("rloo"), arrays, policies(arrays, drift=0.0))
    # Group 0 (1, 0): 1 and -1. Group 1 (.5, 0, 2): .5 - 1, 0 - 1.25, 2 - .25.
    advantages = [1.0, -1.0, -0.5, -1.25, 1.75]
    expected = [-advantages[s] / 5 * m for s, m in zip(arrays.trajectory, arrays.mask, strict=True)]
    np.testing.assert_allclose(result.logp, expected, rtol=1e-12)


@pytest.mark.parametrize("kl", [0.0, 0.3])
def test_reinforce_pp(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any], kl: float
) -> None:
    assert arrays.reference is not None
    to_go = {}
    for s, t in tokens(arrays):
        later = [v for r, v in tokens(arrays) if r == s and v >= t]
        to_go[t] = REWARDS[s] - kl * sum(arrays.behaviour[v] - arrays.reference[v] for v in later)
    mean, std = fmean(to_go.values()), pstdev(to_go.values())
    advantages = {t: (value - mean) / std for t, value in to_go.items()}
    weights = [1 / sum(lengths())] * 5
    expected = clipped_loss(arrays, moved, advantages, weights, 0.2, 0.2)
    agree(outcome(objective("reinforce++", kl=kl), arrays, moved), *expected)


def test_reinforce_pp_with_the_groups_baseline(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    centred = of_trajectory(arrays, relative(REWARDS, std=False))
    std = pstdev(centred.values())
    advantages = {t: value / std for t, value in centred.items()}
    expected = clipped_loss(arrays, moved, advantages, [1 / sum(lengths())] * 5, 0.2, 0.2)
    agree(outcome(objective("reinforce++", baseline="group"), arrays, moved), *expected)


def test_gspo(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    loss, gradient = 0.0, np.zeros(len(arrays.mask))
    for s, advantage in enumerate(relative(REWARDS)):
        own = [t for r, t in tokens(arrays) if r == s]
        ratio = math.exp(fmean(moved.logp[t] - moved.proximal[t] for t in own))
        weight = math.exp(fmean(moved.proximal[t] - arrays.behaviour[t] for t in own))
        value, slope = ppo_token(ratio, weight, advantage, 0.3, 0.4)
        loss += value / 5
        gradient[own] = slope / len(own) / 5
    agree(outcome(objective("gspo", clip_low=0.3, clip_high=0.4), arrays, moved), loss, gradient)


def test_cispo(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    advantages, total = relative(REWARDS), sum(lengths())
    loss, gradient = 0.0, np.zeros(len(arrays.mask))
    for s, t in tokens(arrays):
        weight = min(math.exp(moved.logp[t] - arrays.behaviour[t]), 1.5)
        loss -= weight * advantages[s] * moved.logp[t] / total
        gradient[t] = -weight * advantages[s] / total
    agree(outcome(objective("cispo", clip_high=0.5), arrays, moved), loss, gradient)


def test_ppo(arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]) -> None:
    assert arrays.values is not None
    assert arrays.reference is not None
    gamma, lam, kl = 0.9, 0.8, 0.2
    raw, returns = {}, {}
    for s in range(5):
        own = [t for r, t in tokens(arrays) if r == s]
        after = 0.0
        for place in reversed(range(len(own))):
            t = own[place]
            earned = REWARDS[s] if place == len(own) - 1 else 0.0
            earned -= kl * (arrays.behaviour[t] - arrays.reference[t])
            following = arrays.values[own[place + 1]] if place < len(own) - 1 else 0.0
            after = earned + gamma * following - arrays.values[t] + gamma * lam * after
            raw[t], returns[t] = after, after + arrays.values[t]
    mean, std = fmean(raw.values()), pstdev(raw.values())
    advantages = {t: (value - mean) / std for t, value in raw.items()}
    loss, gradient = clipped_loss(arrays, moved, advantages, [1 / sum(lengths())] * 5, 0.2, 0.2)
    critic = np.zeros(len(arrays.mask))
    for _, t in tokens(arrays):
        shift = min(max(moved.values[t] - arrays.values[t], -0.2), 0.2)
        free, held = moved.values[t] - returns[t], arrays.values[t] + shift - returns[t]
        loss += 0.5 * 0.5 * max(free**2, held**2) / sum(lengths())
        critic[t] = (0.5 * free if free**2 >= held**2 else 0.0) / sum(lengths())
    result = outcome(objective("ppo", gamma=gamma, gae_lambda=lam, kl=kl), arrays, moved)
    agree(result, loss, gradient)
    np.testing.assert_allclose(result.values, critic, rtol=1e-11, atol=1e-14)


def test_sft(arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]) -> None:
    drawn = [t for _, t in tokens(arrays)]
    gradient = np.zeros(len(arrays.mask))
    gradient[drawn] = -1 / len(drawn)
    agree(outcome(objective("sft"), arrays, moved), -fmean(moved.logp[drawn]), gradient)


def test_naive_grpo_clips_against_the_behaviour_policy(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    loss, gradient = 0.0, np.zeros(len(arrays.mask))
    advantages = relative(REWARDS)
    for s, t in tokens(arrays):
        value, slope = ppo_token(math.exp(moved.logp[t] - arrays.behaviour[t]), 1.0, advantages[s], 0.2, 0.2)
        loss += value / (5 * lengths()[s])
        gradient[t] = slope / (5 * lengths()[s])
    agree(outcome(objective("grpo", decoupled=False), arrays, moved), loss, gradient)


def test_grpo_with_kl_and_entropy_in_the_loss(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    assert arrays.reference is not None
    weights = [1 / (5 * n) for n in lengths()]
    loss, gradient = clipped_loss(arrays, moved, of_trajectory(arrays, relative(REWARDS)), weights, 0.2, 0.2)
    bonus = np.zeros(len(arrays.mask))
    for s, t in tokens(arrays):
        d = moved.logp[t] - arrays.reference[t]
        importance = min(math.exp(moved.logp[t] - arrays.behaviour[t]), 5.0)
        loss += weights[s] * (0.3 * importance * (math.exp(-d) - 1 + d) - 0.1 * moved.entropy[t])
        gradient[t] += weights[s] * 0.3 * importance * d
        bonus[t] = -0.1 * weights[s]
    result = outcome(objective("grpo", kl=0.3, entropy=0.1), arrays, moved)
    agree(result, loss, gradient)
    np.testing.assert_allclose(result.entropy, bonus, rtol=1e-12)


def test_grpo_with_kl_in_the_reward(
    arrays: BatchArrays, moved: Any, objective: Callable[..., Objective], outcome: Callable[..., Any]
) -> None:
    assert arrays.reference is not None
    rewards = list(REWARDS)
    for s, t in tokens(arrays):
        rewards[s] -= 0.3 * (arrays.behaviour[t] - arrays.reference[t])
    advantages = of_trajectory(arrays, relative(rewards))
    weights = [1 / (5 * n) for n in lengths()]
    result = outcome(objective("grpo", kl=0.3, kl_in="reward"), arrays, moved)
    agree(result, *clipped_loss(arrays, moved, advantages, weights, 0.2, 0.2))
