"""Objectives that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from attrs import evolve

from areal_core.batch import Targets
from areal_plugins import ObjectiveCapabilities, ObjectiveDescriptor
from areal_plugins.builtin import objectives
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import Case, ObjectiveConformance
from areal_plugins.testing.conformance.running import run


class TestBuiltIn(ObjectiveConformance):
    @pytest.fixture(params=[*objectives.DESCRIPTORS, mocks.OBJECTIVE], ids=lambda descriptor: descriptor.name)
    def component(self, request):
        return request.param


class TestWithADivergence(ObjectiveConformance):
    @pytest.fixture(params=["loss", "reward"])
    def component(self, request):
        return Case("objective/grpo", {"kl": 0.1, "kl_in": request.param})


class Plain:
    """The policy gradient with the batch's mean as its baseline."""

    needs_entropy = needs_reference = needs_critic = False

    def __init__(self, options, context):
        pass

    def keep(self, rewards):
        return True

    def targets(self, arrays):
        advantages = (arrays.rewards - arrays.rewards.mean())[arrays.trajectory]
        return Targets(advantages, arrays.mask / arrays.mask.sum())

    def loss(self, inputs):
        ratio = (inputs.logp - inputs.proximal).exp()
        loss = -(ratio * inputs.advantages * inputs.weights).sum()
        return loss, {"ratio": (ratio * inputs.mask).sum().detach()}


class Critical(Plain):
    needs_critic = True

    def targets(self, arrays):
        targets = super().targets(arrays)
        return evolve(targets, returns=targets.advantages)


class Choosy(Plain):
    def keep(self, rewards):
        return bool(np.ptp(rewards))


class Narrow(Plain):
    def targets(self, arrays):
        targets = super().targets(arrays)
        return evolve(targets, advantages=targets.advantages.astype(np.float32))


class Dividing(Plain):
    def targets(self, arrays):
        spread = arrays.rewards.std() + 1e-9
        advantages = (arrays.rewards - arrays.rewards.mean() + 1e-5) / spread
        return Targets(advantages[arrays.trajectory], arrays.mask / arrays.mask.sum())


class Impatient(Plain):
    def targets(self, arrays):
        found = super().targets(arrays)
        arrays.rewards[:] = arrays.rewards[::-1].copy()
        return found


class Heedless(Plain):
    def targets(self, arrays):
        return evolve(super().targets(arrays), weights=np.ones_like(arrays.mask) / arrays.mask.size)


class Columnar(Plain):
    def loss(self, inputs):
        loss, metrics = super().loss(inputs)
        return loss, {**metrics, "nothing": float("inf")}


class Spoiling(Plain):
    def loss(self, inputs):
        found = super().loss(inputs)
        inputs.lag.add_(1)
        return found


class Averaging(Plain):
    """Its loss is a sum, its metric a mean."""

    def loss(self, inputs):
        loss, metrics = super().loss(inputs)
        return loss, {"ratio": metrics["ratio"] / inputs.mask.sum()}


class Coupled(Plain):
    """Adds to each gradient what depends on its neighbours, and is lost on finite differences of all of it."""

    def loss(self, inputs):
        loss, metrics = super().loss(inputs)
        ours = inputs.trajectory == 0
        constant = (inputs.logp * ours).sum().detach()
        return loss + ((inputs.logp * ours).sum() - constant) * 0.1, metrics


class Wrong(torch.autograd.Function):
    """Itself, with one and a half times its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return 1.5 * g


class Misled(Plain):
    def loss(self, inputs):
        return super().loss(evolve(inputs, logp=Wrong.apply(inputs.logp)))


BROKEN = {
    "test_needs_are_those_it_declares": Critical,
    "test_groups_are_kept_unless_it_chooses": Choosy,
    "test_targets_are_numbers_of_units": Narrow,
    "test_equal_rewards_have_finite_targets": Dividing,
    "test_targets_are_a_function_of_the_batch": Impatient,
    "test_units_that_are_masked_have_no_weight": Heedless,
    "test_a_loss_is_a_finite_scalar": Columnar,
    "test_a_loss_is_a_function_of_its_inputs": Spoiling,
    "test_any_split_has_the_same_loss": Averaging,
    "test_any_split_has_the_same_gradient": Coupled,
    "test_the_gradient_is_that_of_the_loss": Misled,
}
RULES = [name for name in vars(ObjectiveConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    descriptor = ObjectiveDescriptor(
        name=cls.__name__.lower(),
        summary="an odd one",
        factory=f"{__name__}:{cls.__name__}",
        capabilities=ObjectiveCapabilities(),
    )
    return {r.test: r.cause for r in run(ObjectiveConformance, descriptor, only=only) if r.outcome == "failed"}


def test_the_policy_gradient_keeps_every_rule():
    assert failed(Plain) == {}


def test_there_is_a_broken_objective_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_an_objective_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
