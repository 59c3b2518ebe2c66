"""An objective as a weighted sum over units: `L = sum_t weight_t * sum_k term_k(t)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, frozen

from areal_core.batch import BatchArrays, LossInputs, Targets
from areal_plugins.builtin.objectives import kl, reward
from areal_plugins.builtin.objectives.advantage import Estimate
from areal_plugins.builtin.objectives.aggregation import Aggregation
from areal_plugins.builtin.objectives.options import PolicyOptions
from areal_plugins.builtin.objectives.surrogate import clipped

if TYPE_CHECKING:
    from torch import Tensor

Term = Callable[[LossInputs], tuple[Any, Mapping[str, Any]]]
"""The loss of each unit [t], with values of each unit to report."""


def keep_all(rewards: np.ndarray) -> bool:
    """Every group is worth training on."""
    return True


def cleared(inputs: LossInputs) -> LossInputs:
    """The inputs with 0 wherever nothing was drawn, so that not even a NaN there reaches value or gradient."""
    off = ~inputs.mask.bool()

    def clear(column: Tensor | None) -> Tensor | None:
        return None if column is None else column.masked_fill(off, 0.0)

    columns = ("logp", "proximal", "behaviour", "advantages", "weights", "entropy", "reference")
    critic = ("values", "old_values", "returns")
    return evolve(inputs, **{name: clear(getattr(inputs, name)) for name in (*columns, *critic)})


@frozen(kw_only=True, eq=False)
class WeightedLoss:
    """`terms[0]` is weighted over the trajectories that the estimate counts, the others over all that are
    trained on: the advantages take up the difference. Where there is one term, what is not counted
    weighs 0. No unit drawn, or nothing counted, makes a loss of 0.
    """

    estimate: Callable[[BatchArrays], Estimate]
    aggregate: Aggregation
    terms: tuple[Term, ...]
    mask_truncated: bool = False
    needs_entropy: bool = False
    needs_reference: bool = False
    needs_critic: bool = False
    keep: Callable[[np.ndarray], bool] = keep_all

    def targets(self, arrays: BatchArrays) -> Targets:
        estimate = self.estimate(arrays)
        length = reward.lengths(arrays)
        trained = (length > 0) & ~(arrays.truncated & self.mask_truncated)
        policy = self.aggregate(length, trained & estimate.counted)
        weights = self.aggregate(length, trained) if len(self.terms) > 1 else policy
        scale = policy / np.where(weights > 0, weights, 1.0)
        return Targets(
            advantages=estimate.advantages * scale[arrays.trajectory],
            weights=weights[arrays.trajectory] * arrays.mask,
            returns=estimate.returns,
            metrics=estimate.metrics,
        )

    def loss(self, inputs: LossInputs) -> tuple[Any, Mapping[str, Any]]:
        inputs = cleared(inputs)
        total = inputs.logp.new_zeros(())
        metrics: dict[str, Any] = {}
        for term in self.terms:
            losses, reports = term(inputs)
            total = total + (inputs.weights * losses).sum()
            metrics |= {name: (each.detach() * inputs.mask).sum() for name, each in reports.items()}
        return total, metrics


def entropy_bonus(inputs: LossInputs, coefficient: float) -> tuple[Any, Mapping[str, Any]]:
    """`-coefficient * H` a unit [t] (arXiv 1602.01783)."""
    return -coefficient * inputs.entropy, {}


def policy_gradient(
    options: PolicyOptions,
    estimate: Callable[[BatchArrays], Estimate],
    aggregate: Aggregation,
    *,
    policy: Term | None = None,
    terms: tuple[Term, ...] = (),
    keep: Callable[[np.ndarray], bool] = keep_all,
    needs_critic: bool = False,
) -> WeightedLoss:
    """The objective of a `policy` term (PPO's when left out), what the options add to it, and further `terms`."""
    every: list[Term] = [policy or partial(clipped, options=options)]
    if options.loss_kl:
        every.append(partial(kl.penalty, options=options))
    if options.entropy:
        every.append(partial(entropy_bonus, coefficient=options.entropy))
    return WeightedLoss(
        estimate=estimate,
        aggregate=aggregate,
        terms=(*every, *terms),
        mask_truncated=options.mask_truncated,
        needs_entropy=options.entropy > 0,
        needs_reference=options.kl > 0,
        needs_critic=needs_critic,
        keep=keep,
    )
