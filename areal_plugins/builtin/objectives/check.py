"""What can be wrong between an objective's options and the rest of the spec. Light: no numpy, no torch."""

from __future__ import annotations

from collections.abc import Iterator

from areal_plugins import CheckContext, Finding
from areal_plugins.builtin.objectives.options import DapoOptions, PolicyOptions


def group(ctx: CheckContext) -> Iterator[Finding]:
    """A baseline made of the group needs another member."""
    if ctx.spec.objective.group_size < 2:
        yield Finding(
            "group-too-small",
            f"`{ctx.spec.objective.type}` compares the members of a group, and a group of "
            f"{ctx.spec.objective.group_size} has nothing to compare",
            (*ctx.path, "group_size"),
            hint="use group_size: 2 or more, or reinforce++ or ppo, which need no group",
        )


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


def critic(ctx: CheckContext) -> Iterator[Finding]:
    """Values come from a critic."""
    if ctx.spec.objective.critic is None:
        yield Finding(
            "missing-critic",
            f"`{ctx.spec.objective.type}` needs a value model, and there is no critic",
            (*ctx.path, "critic"),
            hint="add `critic: {learning_rate: 1.0e-5}` to the objective",
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


def grouped(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of objectives whose baseline is the group's."""
    yield from group(ctx)
    yield from divergence(ctx)


def dapo(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of `dapo`."""
    yield from grouped(ctx)
    yield from overlong(ctx)


def reinforce_pp(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of `reinforce++`."""
    if ctx.options.baseline == "group":
        yield from group(ctx)
    yield from divergence(ctx)


def ppo(ctx: CheckContext) -> Iterator[Finding]:
    """Checks of `ppo`."""
    yield from critic(ctx)
    yield from divergence(ctx)
