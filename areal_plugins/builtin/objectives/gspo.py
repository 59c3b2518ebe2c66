"""GSPO: Zheng et al., arXiv 2507.18071, equations 5 to 7."""

from __future__ import annotations

from functools import partial

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, grpo_estimate
from areal_plugins.builtin.objectives.aggregation import sequence_mean
from areal_plugins.builtin.objectives.options import GspoOptions
from areal_plugins.builtin.objectives.surrogate import clipped
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def gspo(options: GspoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/N sum_i min(s_i A_i, clip(s_i) A_i)`, `s_i = exp(1/n_i sum_t log theta / old)`, `A_i` as in GRPO.

    The reward judges the whole answer, so the ratio and its clipping do too. Each of the n_i tokens
    carries 1/n_i of its answer's term.
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        rewards = reward.per_trajectory(arrays, options.reward_kl)
        return grpo_estimate(arrays, rewards, options.scale, options.equal_groups)

    policy = partial(clipped, options=options, level="geometric")
    return policy_gradient(options, estimate, sequence_mean, policy=policy)
