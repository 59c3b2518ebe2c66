"""Probability ratios between the current, the proximal and the behaviour policy, on torch tensors.

Shapes are [t], the units of one micro-batch of whole trajectories. Only tensor methods are used, so
that this module needs no torch of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from areal_core.batch import LossInputs
from areal_plugins.builtin.objectives.options import Level, PolicyOptions

if TYPE_CHECKING:
    from torch import Tensor


def trajectory_sum(values: Tensor, trajectory: Tensor) -> Tensor:
    """[t]: each unit gets the sum over its trajectory."""
    # As many slots as units are always enough, and counting trajectories would wait for the device.
    sums = values.new_zeros(len(values)).index_add(0, trajectory, values)
    return sums[trajectory]


def at_level(log_ratio: Tensor, inputs: LossInputs, level: Level) -> Tensor:
    """[t]: the log-ratio of each token, of its whole answer, or the mean over its answer.

    `geometric` is the length-normalized ratio of GSPO (arXiv 2507.18071, equation 7).
    """
    if level == "token":
        return log_ratio
    total = trajectory_sum(log_ratio, inputs.trajectory)
    if level == "sequence":
        return total
    length = trajectory_sum(inputs.mask.to(log_ratio.dtype), inputs.trajectory)
    return total / length.clamp(min=1)


def bounded(weight: Tensor, options: PolicyOptions) -> Tensor:
    """Importance weights under `behaviour_cap`: truncated to it (Ionides, Truncated Importance Sampling, 2008:
    some bias for a bounded variance), or 0 beyond it.
    """
    if options.behaviour_cap is None:
        return weight
    if options.behaviour_excess == "truncate":
        return weight.clamp(max=options.behaviour_cap)
    return weight.masked_fill(weight > options.behaviour_cap, 0.0)


def behaviour_weight(inputs: LossInputs, options: PolicyOptions) -> tuple[Tensor, Tensor]:
    """`pi_prox / pi_behaviour` [t], detached and bounded, and where it went over the bound.

    It corrects for staleness and for the engine's arithmetic alike, at the level the options say.
    """
    log_ratio = (inputs.proximal - inputs.behaviour).detach()
    raw = at_level(log_ratio, inputs, options.behaviour_level).exp()
    weight = bounded(raw, options)
    return weight, (weight != raw).to(raw.dtype)
