"""Optimizers that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import pytest
import torch

from areal_plugins import OptimizerDescriptor
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import OptimizerConformance
from areal_plugins.testing.conformance.running import run


class TestBuiltIn(OptimizerConformance):
    @pytest.fixture(params=["optimizer/adamw", mocks.OPTIMIZER], ids=["adamw", "mock"])
    def component(self, request):
        return request.param


class Descent(torch.optim.Optimizer):
    """Gradient descent with momentum."""

    rate = staticmethod(lambda context: context.learning_rate)

    def __init__(self, options, context):
        super().__init__([dict(group) for group in context.parameters], {"lr": self.rate(context)})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self.move(parameter, group["lr"])

    def move(self, parameter, rate):
        state = self.state[parameter]
        state["momentum"] = 0.5 * state.get("momentum", 0.0) + parameter.grad
        parameter.sub_(state["momentum"] * rate)


class Lookalike:
    def __init__(self, options, context):
        inner = Descent(options, context)
        self.param_groups, self.step, self.zero_grad = inner.param_groups, inner.step, inner.zero_grad
        self.state_dict, self.load_state_dict = inner.state_dict, inner.load_state_dict


class Careless(Descent):
    """Holds a parameter more than it was given."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))]})


class Hasty(Descent):
    rate = staticmethod(lambda context: 2 * context.learning_rate)


class Climber(Descent):
    def move(self, parameter, rate):
        super().move(parameter, -rate)


class Noisy(Descent):
    """Draws from torch's generator once, at its start; the state carries what was drawn."""

    def move(self, parameter, rate):
        state = self.state[parameter]
        if "noise" not in state:
            state["noise"] = torch.rand(1) + 0.5
        super().move(parameter, rate * state["noise"])


class Forgetful(Descent):
    def state_dict(self):
        return {**super().state_dict(), "state": {}}


class Decaying(Descent):
    def move(self, parameter, rate):
        super().move(parameter, rate)
        parameter.mul_(0.999)


class Sweeping(Descent):
    @torch.no_grad()
    def step(self, closure=None):
        super().step()
        for parameter in self.param_groups[1]["params"]:
            parameter.mul_(1 - self.param_groups[1]["lr"])


BROKEN = {
    "test_it_is_an_optimizer_of_torch": Lookalike,
    "test_it_has_every_parameter_once": Careless,
    "test_it_starts_at_the_learning_rate": Hasty,
    "test_steps_go_downhill": Climber,
    "test_steps_are_deterministic": Noisy,
    "test_it_goes_on_from_its_state": Forgetful,
    "test_a_rate_of_nothing_changes_nothing": Decaying,
    "test_what_has_no_gradient_stays": Sweeping,
}
RULES = [name for name in vars(OptimizerConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    descriptor = OptimizerDescriptor(
        name=cls.__name__.lower(), summary="an odd one", factory=f"{__name__}:{cls.__name__}"
    )
    return {r.test: r.cause for r in run(OptimizerConformance, descriptor, only=only) if r.outcome == "failed"}


def test_plain_descent_keeps_every_rule():
    assert failed(Descent) == {}


def test_there_is_a_broken_optimizer_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_an_optimizer_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
