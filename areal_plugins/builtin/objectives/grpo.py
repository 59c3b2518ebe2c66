"""GRPO: Shao et al., DeepSeekMath, arXiv 2402.03300, equation 3."""

from __future__ import annotations

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, grpo_estimate
from areal_plugins.builtin.objectives.aggregation import sequence_mean
from areal_plugins.builtin.objectives.options import GrpoOptions
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def grpo(options: GrpoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/N sum_i 1/n_i sum_t min(u A_i, clip(u) A_i) - kl KL`, `A_i = (R_i - mean) / std` in its group.

    N counts the trajectories of groups whose rewards differ (`equal_groups: count`: all).
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        rewards = reward.per_trajectory(arrays, options.reward_kl)
        return grpo_estimate(arrays, rewards, options.scale, options.equal_groups)

    return policy_gradient(options, estimate, sequence_mean)
