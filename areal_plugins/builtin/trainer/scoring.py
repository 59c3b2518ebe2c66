"""Forward passes over a batch: what objectives need before any gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from attrs import evolve
from torch import Tensor

from areal_core.batch import BatchArrays
from areal_plugins.builtin.trainer.micro import Micro, place
from areal_plugins.builtin.trainer.packing import Packed
from areal_plugins.builtin.trainer.policy import Policy, evaluating
from areal_plugins.builtin.trainer.stage import Stage
from areal_plugins.builtin.trainer.units import Units

Scored = Iterable[tuple[np.ndarray, Tensor]]
"""Units [t] of a micro-batch and something of each of them [t]."""


def spread(scored: Scored, count: int) -> np.ndarray:
    """[count] float64, 0 at units that were not scored."""
    column = np.zeros(count)
    for units, values in scored:
        column[units] = values.cpu().numpy()
    return column


def log_probabilities(policy: Policy, temperature: float, packed: Iterable[Packed], count: int) -> np.ndarray:
    """[count] under the policy as it is."""
    return _score(policy, lambda micro: policy.score(micro, temperature)[0], packed, count)


def with_models(policy: Policy, stage: Stage, units: Units, packed: Iterable[Packed]) -> BatchArrays:
    """The batch's arrays, with reference log-probabilities and values where the objective needs them."""
    arrays, count = units.arrays, len(units.arrays.mask)
    if stage.reference is not None:
        with stage.reference.active():
            arrays = evolve(arrays, reference=log_probabilities(policy, stage.plan.temperature, packed, count))
    if stage.critic is not None:
        with evaluating(stage.critic):
            arrays = evolve(arrays, values=_score(policy, stage.critic.score, packed, count))
    return arrays


def _score(policy: Policy, score: Callable[[Micro], Tensor], packed: Iterable[Packed], count: int) -> np.ndarray:
    with evaluating(policy.model):
        return spread([(each.units, score(place(each, policy.device))) for each in packed], count)
