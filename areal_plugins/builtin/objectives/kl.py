"""KL(theta || reference) as a term of the loss: the value of an estimator, the gradient of the divergence.

For a token `a` drawn from `theta` let `d = log theta(a) - log reference(a)`. Schulman's note
(http://joschu.net/blog/kl-approx.html) gives three estimates of the divergence's *value*: `k1 = d`,
`k2 = d^2 / 2` and `k3 = exp(-d) - 1 + d`. Differentiating an estimate is something else, for the
distribution that is averaged over moves too. The gradient of the divergence at one state is

    grad KL = E_{a ~ theta}[d * grad log theta(a)]

while autograd through the estimates gives `E[grad k1] = 0`, `E[grad k3] = grad KL(reference || theta)`,
the divergence the other way round, and only `E[grad k2] = grad KL` (arXiv 2506.09477; arXiv 2510.01555).
So the gradient here is always `d * grad log theta`, and the estimator chooses the value that is reported.

Tokens come from the behaviour policy, so both carry the importance weight `theta / behaviour`, detached;
with it the gradient equals that of `k3 * theta / behaviour` in DeepSeek-V3.2 (arXiv 2512.02556, equation 7).
The weight is bounded by `behaviour_cap` like any other.

What is penalized is the divergence at the states that were visited; how a token moves later states is
left out, as in GRPO. `kl_in: reward` has that part too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from areal_core.batch import LossInputs
from areal_plugins.builtin.objectives.options import Estimator, PolicyOptions
from areal_plugins.builtin.objectives.ratio import bounded

if TYPE_CHECKING:
    from torch import Tensor


def estimate(d: Tensor, estimator: Estimator) -> Tensor:
    """Schulman's k1, k2 or k3 of `d = log theta - log reference`."""
    if estimator == "k1":
        return d
    if estimator == "k2":
        return d.square() / 2
    return (-d).expm1() + d


def penalty(inputs: LossInputs, options: PolicyOptions) -> tuple[Tensor, Mapping[str, Tensor]]:
    """`kl * weight * estimate` a unit [t], with the gradient `kl * weight * d * grad log theta`."""
    d = (inputs.logp - inputs.reference).detach()
    weight = bounded((inputs.logp - inputs.behaviour).detach().exp(), options)
    value = weight * estimate(d, options.kl_estimator or "k3")
    carrier = inputs.logp - inputs.logp.detach()  # 0, with the gradient of logp
    return options.loss_kl * (value + weight * d * carrier), {"kl": value}
