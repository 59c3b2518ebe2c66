"""Dr. GRPO: Liu et al., Understanding R1-Zero-Like Training, arXiv 2503.20783, section 3.2."""

from __future__ import annotations

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, grpo_estimate
from areal_plugins.builtin.objectives.aggregation import constant
from areal_plugins.builtin.objectives.options import DrGrpoOptions
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def dr_grpo(options: DrGrpoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/(N L) sum_i sum_t min(u A_i, clip(u) A_i) - kl KL`, `A_i = R_i - mean` in its group.

    L is a constant, the longest answer, so that a token weighs the same in a long answer as in a short
    one; without the division by the standard deviation, easy and hard tasks weigh the same too.
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        rewards = reward.per_trajectory(arrays, options.reward_kl)
        return grpo_estimate(arrays, rewards, options.scale, options.equal_groups)

    return policy_gradient(options, estimate, constant(options.max_length or context.max_new_tokens))
