"""DAPO: Yu et al., arXiv 2503.14476, equation 8."""

from __future__ import annotations

import numpy as np

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, differing, grpo_estimate
from areal_plugins.builtin.objectives.aggregation import token_mean
from areal_plugins.builtin.objectives.options import DapoOptions
from areal_plugins.builtin.objectives.weighted import WeightedLoss, keep_all, policy_gradient


def unequal(rewards: np.ndarray) -> bool:
    """Whether a group [G] can teach anything: its rewards differ. Judged before any shaping, as in the paper."""
    return bool(differing(rewards, np.zeros(len(rewards), dtype=np.int64)).any())


def dapo(options: DapoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/(sum_i n_i) sum_i sum_t min(u A_i, clip(u, 1 - low, 1 + high) A_i)`, `A_i = (R_i - mean) / std`.

    `high > low` (clip-higher), groups of equal reward replaced (`keep`, dynamic sampling), and
    `R_i` less a penalty on answers near the length limit (`reward.overlong`). The sum of tokens is
    that of the batch, as in the authors' code; the formula's is a group's.
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        length = reward.lengths(arrays)
        penalty = reward.overlong(length, context.max_new_tokens, options.overlong_buffer, options.overlong_penalty)
        rewards = reward.per_trajectory(arrays, options.reward_kl) + penalty
        return grpo_estimate(arrays, rewards, options.scale, options.equal_groups)

    return policy_gradient(options, estimate, token_mean, keep=unequal if options.dynamic_sampling else keep_all)
