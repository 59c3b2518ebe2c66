"""CISPO: MiniMax-M1, arXiv 2506.13585, equations 4 and 5."""

from __future__ import annotations

from functools import partial

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, grpo_estimate
from areal_plugins.builtin.objectives.aggregation import token_mean
from areal_plugins.builtin.objectives.options import CispoOptions
from areal_plugins.builtin.objectives.surrogate import clipped_weight
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def cispo(options: CispoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/(sum_i n_i) sum_i sum_t sg[clip(theta / behaviour, 1 - low, 1 + high)] A_i log theta`.

    `A_i` as in GRPO. The paper sets no lower bound and tunes the upper one; 5 for the largest weight
    is ScaleRL's choice (arXiv 2510.13786).
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        rewards = reward.per_trajectory(arrays, options.reward_kl)
        return grpo_estimate(arrays, rewards, options.scale, options.equal_groups)

    return policy_gradient(options, estimate, token_mean, policy=partial(clipped_weight, options=options))
