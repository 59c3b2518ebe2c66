"""What can be wrong between an objective's options and the rest of the spec. Light: no numpy, no torch.

That a group is large enough for the objective follows from its capabilities, and is checked by the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from areal_plugins import CheckContext, Finding

if TYPE_CHECKING:
    from areal_plugins.builtin.objectives.options import DapoOptions, PolicyOptions


def divergence(ctx: CheckContext) -> Iterator[Finding]:
    """KL needs a reference, and in the reward the one estimator that has the right gradient there."""
    options: PolicyOptions = ctx.options
    if options.kl > 0 and ctx.spec.objective.reference is None:
        yield Finding(
            "missing-reference",
            f"kl: {options.kl} measures the divergence from a reference policy, and there is none",
            (*ctx.path, "kl"),
            hint="add `reference: {}` to the objective, or set kl: 0",
        )
    if options.kl_in == "reward" and options.kl_estimator not in (None, "k1"):
        yield Finding(
            "biased-estimator",
            f"kl_estimator: {options.kl_estimator} in the reward does not have the gradient of the KL divergence",
            (*ctx.path, "kl_estimator"),
            hint="use k1 with kl_in: reward, or kl_in: loss",
        )


def overlong(ctx: CheckContext) -> Iterator[Finding]:
    """The length penalty rises within the length limit."""
    options: DapoOptions = ctx.options
    limit = ctx.spec.inference.sampling.max_new_tokens
    if options.overlong_buffer > limit:
        yield Finding(
            "buffer-too-long",
            f"overlong_buffer: {options.overlong_buffer} is longer than the longest answer, {limit} tokens "
            "(inference.sampling.max_new_tokens)",
            (*ctx.path, "overlong_buffer"),
            hint=f"the paper uses a fifth of the limit: {max(1, limit // 5)}",
        )


def dapo(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of `dapo`."""
    yield from divergence(ctx)
    yield from overlong(ctx)


def reinforce_pp(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of `reinforce++`, which compares the members of a group only if it is told to."""
    if ctx.options.baseline == "group" and ctx.spec.objective.group_size < 2:
        yield Finding(
            "group-too-small",
            f"baseline: group compares the members of a group, and a group of {ctx.spec.objective.group_size} "
            "has nothing to compare",
            (*ctx.path, "baseline"),
            hint="use group_size: 2 or more, or baseline: none",
        )
    yield from divergence(ctx)
