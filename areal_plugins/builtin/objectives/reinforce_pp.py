"""REINFORCE++: Hu et al., arXiv 2501.03262."""

from __future__ import annotations

import numpy as np

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, centred, whiten
from areal_plugins.builtin.objectives.aggregation import token_mean
from areal_plugins.builtin.objectives.gae import generalized_advantage
from areal_plugins.builtin.objectives.options import ReinforcePlusPlusOptions
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def returns(arrays: BatchArrays, rewards: np.ndarray, kl: float) -> np.ndarray:
    """[T]: `R_i - kl * sum_{s >= t} k1_s` of each drawn unit, R [S]."""
    drawn = arrays.mask > 0
    out = np.zeros(len(drawn))
    penalties = -kl * reward.divergence(arrays)[drawn] if kl else out[drawn]
    owner = arrays.trajectory[drawn]
    out[drawn] = rewards[owner] + generalized_advantage(penalties, np.zeros(len(owner)), owner, 1.0, 1.0)
    return out


def reinforce_pp(options: ReinforcePlusPlusOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/(sum_i n_i) sum_i sum_t min(u A_it, clip(u) A_it)`, `A_it` the return to go, normalized over all
    tokens of the batch: `(A - mean) / std`.

    With `baseline: group` the group's mean is subtracted from the rewards first. Their mean is then 0, so
    they are only divided, and a group of equal rewards keeps its advantages of exactly 0.
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        grouped = options.baseline == "group"
        rewards = centred(arrays.rewards, arrays.group) if grouped else arrays.rewards
        to_go = returns(arrays, rewards, options.reward_kl)
        metrics = {"kl": reward.mean_divergence(arrays)} if options.reward_kl else {}
        return Estimate(
            advantages=whiten(to_go, arrays.mask, centre=not grouped),
            counted=np.ones(len(arrays.rewards), dtype=bool),
            metrics=metrics,
        )

    return policy_gradient(options, estimate, token_mean)
