"""RLOO: Kool et al., Buy 4 REINFORCE Samples, 2019; Ahmadian et al., Back to Basics, arXiv 2402.14740."""

from __future__ import annotations

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, group_estimate, leave_one_out
from areal_plugins.builtin.objectives.aggregation import sequence_sum
from areal_plugins.builtin.objectives.options import RlooOptions
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def rloo(options: RlooOptions, context: ObjectiveContext) -> WeightedLoss:
    """`grad J = 1/N sum_i (R_i - mean of the others) sum_t grad log theta`, KL in `R_i` by default.

    The answer is one action: its tokens' terms are summed, not averaged. Away from the behaviour policy
    each token has PPO's clipped ratio, which on-policy has this very gradient.
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        rewards = reward.per_trajectory(arrays, options.reward_kl)
        return group_estimate(arrays, rewards, leave_one_out, options.equal_groups)

    return policy_gradient(options, estimate, sequence_sum)
