"""Rewards as objectives see them: with a penalty on divergence, or on length, folded in. float64."""

from __future__ import annotations

import numpy as np

from areal_core.batch import BatchArrays


def lengths(arrays: BatchArrays) -> np.ndarray:
    """[S] int64: trained units of each trajectory."""
    return np.bincount(arrays.trajectory[arrays.mask > 0], minlength=len(arrays.rewards))


def divergence(arrays: BatchArrays) -> np.ndarray:
    """[T]: k1, `log behaviour - log reference` of each drawn unit.

    As a reward k1 gives the gradient of the reverse KL divergence of whole answers, later tokens
    included; k2 and k3 do not (arXiv 2510.01555). It is taken under the policy that drew
    the unit, as in PPO for language models (arXiv 1909.08593, equation 2).
    """
    assert arrays.reference is not None, "the trainer must supply the reference that needs_reference asks for"
    return np.where(arrays.mask > 0, arrays.behaviour - arrays.reference, 0.0)


def per_trajectory(arrays: BatchArrays, kl: float) -> np.ndarray:
    """[S]: `R - kl * sum_t k1_t`."""
    if kl == 0:
        return arrays.rewards
    total: np.ndarray = np.bincount(arrays.trajectory, divergence(arrays), minlength=len(arrays.rewards))
    return arrays.rewards - kl * total


def per_unit(arrays: BatchArrays, kl: float) -> np.ndarray:
    """[T]: `-kl * k1_t`, plus the trajectory's reward at its last drawn unit."""
    rewards = -kl * divergence(arrays) if kl else np.zeros(len(arrays.mask))
    drawn = np.flatnonzero(arrays.mask > 0)
    owner = arrays.trajectory[drawn]
    last = drawn[np.append(owner[1:] != owner[:-1], True)] if len(drawn) else drawn
    rewards[last] += arrays.rewards[arrays.trajectory[last]]
    return rewards


def mean_divergence(arrays: BatchArrays) -> float:
    """The mean of k1 over drawn units; 0 without any."""
    return float(divergence(arrays).sum() / max(1.0, (arrays.mask > 0).sum()))


def overlong(length: np.ndarray, limit: int, buffer: int, penalty: float) -> np.ndarray:
    """[S]: DAPO's soft punishment (arXiv 2503.14476, equation 13), from 0 at `limit - buffer` tokens down
    to `-penalty` at `limit` and beyond: `clip((limit - buffer - length) / buffer, -1, 0) * penalty`.
    """
    if buffer == 0:
        return np.zeros(len(length))
    return penalty * np.clip((limit - buffer - length) / buffer, -1.0, 0.0)
