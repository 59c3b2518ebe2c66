"""Supervised fine-tuning on the tasks' demonstrations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from areal_core.batch import BatchArrays, LossInputs
from areal_core.contexts import ObjectiveContext
from areal_core.descriptors import NoOptions
from areal_plugins.builtin.objectives.advantage import Estimate
from areal_plugins.builtin.objectives.aggregation import token_mean
from areal_plugins.builtin.objectives.weighted import WeightedLoss


def likelihood(inputs: LossInputs) -> tuple[Any, Mapping[str, Any]]:
    """`-log theta` a unit [t]."""
    return -inputs.logp, {}


def estimate(arrays: BatchArrays) -> Estimate:
    """Every demonstration counts, whatever its reward."""
    return Estimate(advantages=arrays.mask.copy(), counted=np.ones(len(arrays.rewards), dtype=bool))


def sft(options: NoOptions, context: ObjectiveContext) -> WeightedLoss:
    """`L = -1/(sum_i n_i) sum_i sum_t log theta`: the mean over all demonstrated tokens of the batch."""
    return WeightedLoss(estimate=estimate, aggregate=token_mean, terms=(likelihood,))
