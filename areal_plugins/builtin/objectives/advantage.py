"""Advantages from rewards, in float64. A group of equal rewards has advantages of exactly 0.

Shapes: S trajectories, T units. `group` [S] numbers the groups 0..G-1; groups may differ in size,
for members can be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from attrs import field, frozen

from areal_core.batch import BatchArrays
from areal_plugins.builtin.objectives.options import EqualGroups, Scale

EQUAL = 1e-6
"""Rewards that lie no further apart than this, relative to the largest of them or to 1, are equal.

Rewards that were meant to be equal may differ in their last digits; divided by the standard deviation
of those digits they would make advantages as large as any.
"""


@frozen(eq=False)
class Estimate:
    """Advantages [T] of a batch, and which trajectories [S] the policy term's denominator counts."""

    advantages: np.ndarray
    counted: np.ndarray
    returns: np.ndarray | None = None
    metrics: Mapping[str, float] = field(factory=dict)


def group_mean(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[S]: the mean over each trajectory's group."""
    sizes = np.bincount(group)
    mean: np.ndarray = (np.bincount(group, values) / np.maximum(sizes, 1))[group]
    return mean


def differing(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[S] bool: whether the values of each trajectory's group differ (see `EQUAL`)."""
    top = np.full(group.max() + 1, -np.inf)
    bottom = -top
    np.maximum.at(top, group, values)
    np.minimum.at(bottom, group, values)
    size = np.maximum(1.0, np.maximum(np.abs(top), np.abs(bottom)))
    differ: np.ndarray = (top - bottom > EQUAL * size)[group]
    return differ


def centred(rewards: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[S]: reward minus the group's mean; 0 in groups of equal reward and of one."""
    return np.where(differing(rewards, group), rewards - group_mean(rewards, group), 0.0)


def deviation(rewards: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[S]: the sample standard deviation (n - 1) of each trajectory's group; 0 for a group of one."""
    sizes = np.bincount(group)
    squares = np.bincount(group, (rewards - group_mean(rewards, group)) ** 2)
    spread: np.ndarray = np.sqrt(squares / np.maximum(sizes - 1, 1))[group]
    return spread


def group_relative(rewards: np.ndarray, group: np.ndarray, scale: Scale) -> np.ndarray:
    """[S]: `(r - mean(group)) / std`, the std that of the group (GRPO, arXiv 2402.03300), that of all
    rewards of the batch, or 1 (Dr. GRPO, arXiv 2503.20783). No epsilon: equal rewards never divide.
    """
    centre = centred(rewards, group)
    if scale == "none":
        return centre
    spread = deviation(rewards, group if scale == "group" else np.zeros_like(group))
    relative: np.ndarray = centre / np.where(spread > 0, spread, 1.0)
    return relative


def leave_one_out(rewards: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[S]: `r_i - mean of the others = n / (n - 1) * (r_i - mean)` (RLOO, arXiv 2402.14740)."""
    sizes = np.bincount(group)[group]
    advantages: np.ndarray = centred(rewards, group) * sizes / np.maximum(sizes - 1, 1)
    return advantages


def whiten(values: np.ndarray, mask: np.ndarray, centre: bool = True) -> np.ndarray:
    """[T]: `(v - mean) / std` over the units of `mask` (population std), 0 elsewhere and where all are equal.

    `centre` False only divides, for values whose mean is 0 by construction.
    """
    chosen = values[mask > 0]
    out = np.zeros_like(values)
    if chosen.size and differing(chosen, np.zeros(chosen.size, dtype=np.int64))[0]:
        out[mask > 0] = (chosen - chosen.mean() if centre else chosen) / chosen.std()
    return out


def group_estimate(
    arrays: BatchArrays,
    rewards: np.ndarray,
    advantage: Callable[[np.ndarray, np.ndarray], np.ndarray],
    equal_groups: EqualGroups,
) -> Estimate:
    """Every unit of a trajectory gets its `advantage(rewards, group)`; `rewards` [S] may be shaped."""
    differ = differing(rewards, arrays.group)
    return Estimate(
        advantages=advantage(rewards, arrays.group)[arrays.trajectory] * arrays.mask,
        counted=differ | (equal_groups == "count"),
        metrics={"equal_rewards": float(1.0 - differ.mean())},
    )


def grpo_estimate(arrays: BatchArrays, rewards: np.ndarray, scale: Scale, equal_groups: EqualGroups) -> Estimate:
    """`group_estimate` with `group_relative` advantages."""
    return group_estimate(arrays, rewards, lambda values, group: group_relative(values, group, scale), equal_groups)
