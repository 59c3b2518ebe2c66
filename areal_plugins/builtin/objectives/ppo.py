"""PPO with a critic: Schulman et al., arXiv 1707.06347; for language models, arXiv 1909.08593."""

from __future__ import annotations

from functools import partial

import numpy as np

from areal_core.batch import BatchArrays
from areal_core.contexts import ObjectiveContext
from areal_plugins.builtin.objectives import reward
from areal_plugins.builtin.objectives.advantage import Estimate, whiten
from areal_plugins.builtin.objectives.aggregation import token_mean
from areal_plugins.builtin.objectives.gae import generalized_advantage
from areal_plugins.builtin.objectives.options import PpoOptions
from areal_plugins.builtin.objectives.value import value_loss
from areal_plugins.builtin.objectives.weighted import WeightedLoss, policy_gradient


def explained(returns: np.ndarray, values: np.ndarray) -> float:
    """`1 - var(returns - values) / var(returns)`; 0 where returns do not vary."""
    variance = returns.var() if returns.size else 0.0
    return float(1.0 - (returns - values).var() / variance) if variance > 0 else 0.0


def ppo(options: PpoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`J = 1/(sum_i n_i) sum_i sum_t min(u A_it, clip(u) A_it) - value_coefficient * value loss`.

    The reward comes with the last drawn token, less KL with every one; advantages by GAE over the
    drawn tokens alone (a tool's answer is no step), returns `A + V` before normalization.
    """

    def estimate(arrays: BatchArrays) -> Estimate:
        assert arrays.values is not None, "the trainer must supply the values that needs_critic asks for"
        drawn = arrays.mask > 0
        rewards = reward.per_unit(arrays, options.reward_kl)[drawn]
        values, owner = arrays.values[drawn], arrays.trajectory[drawn]
        advantages, returns = np.zeros(len(drawn)), np.zeros(len(drawn))
        advantages[drawn] = generalized_advantage(rewards, values, owner, options.gamma, options.gae_lambda)
        returns[drawn] = advantages[drawn] + values
        metrics = {"explained_variance": explained(returns[drawn], values)}
        return Estimate(
            advantages=whiten(advantages, arrays.mask) if options.normalize else advantages,
            counted=np.ones(len(arrays.rewards), dtype=bool),
            returns=returns,
            metrics=metrics | ({"kl": reward.mean_divergence(arrays)} if options.reward_kl else {}),
        )

    critic = partial(value_loss, coefficient=options.value_coefficient, clip=options.value_clip)
    return policy_gradient(options, estimate, token_mean, terms=(critic,), needs_critic=True)
