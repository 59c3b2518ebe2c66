"""Policy terms: a loss a unit [t] whose gradient improves the policy, before weights and sum.

With `theta` the current policy, `prox` the one at the start of the step and `behaviour` the one that
drew the token, the decoupled objective (Hilton et al., arXiv 2110.00641; AReaL, arXiv 2505.24298)
takes `u = theta / prox` and an importance weight `w = prox / behaviour` that has no
gradient; the naive one takes `u = theta / behaviour` and `w = 1`. They are equal where `prox` is
`behaviour`. Under staleness the naive trust region lies around a policy that is no longer there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from areal_core.batch import LossInputs
from areal_plugins.builtin.objectives.options import Level, PolicyOptions
from areal_plugins.builtin.objectives.ratio import at_level, behaviour_weight

if TYPE_CHECKING:
    from torch import Tensor

    Term = tuple[Tensor, Mapping[str, Tensor]]


def importance(inputs: LossInputs, options: PolicyOptions) -> Term:
    """`w` [t], and what is reported of it."""
    if not options.decoupled:
        return inputs.logp.new_ones(len(inputs.logp)), {}
    weight, over = behaviour_weight(inputs, options)
    return weight, {"behaviour_weight": weight, "behaviour_capped": over}


def ratio(inputs: LossInputs, options: PolicyOptions, level: Level = "token") -> Tensor:
    """`u` [t], with the gradient of `logp`."""
    anchor = inputs.proximal if options.decoupled else inputs.behaviour
    return at_level(inputs.logp - anchor, inputs, level).exp()


def clipped(inputs: LossInputs, options: PolicyOptions, level: Level = "token") -> Term:
    """`-w min(u A, clip(u, 1 - clip_low, 1 + clip_high) A)` (PPO, arXiv 1707.06347, equation 7).

    A lower and an upper bound of their own are DAPO's clip-higher; `level` `geometric` is GSPO's ratio.
    """
    u = ratio(inputs, options, level)
    plain = u * inputs.advantages
    limited = u.clamp(1 - options.clip_low, 1 + options.clip_high) * inputs.advantages
    weight, metrics = importance(inputs, options)
    return -weight * plain.minimum(limited), {"clip_fraction": (limited < plain).to(u.dtype), "ratio": u, **metrics}


def clipped_weight(inputs: LossInputs, options: PolicyOptions) -> Term:
    """`-sg[w clip(u, 1 - clip_low, 1 + clip_high)] A log theta` (CISPO, arXiv 2506.13585, equations 4 and 5).

    Clipping bounds a token's weight and never takes its gradient away.
    """
    u = ratio(inputs, options).detach()
    bound = u.clamp(1 - options.clip_low, 1 + options.clip_high)
    weight, metrics = importance(inputs, options)
    loss = -weight * bound * inputs.advantages * inputs.logp
    return loss, {"clip_fraction": (bound != u).to(u.dtype), "ratio": u, **metrics}
