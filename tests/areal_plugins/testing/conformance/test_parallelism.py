"""A way to spread a model that keeps the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import pytest
import torch

from areal_plugins import ParallelismCapabilities, ParallelismDescriptor
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import ParallelismConformance
from areal_plugins.testing.conformance.running import run


class TestMock(ParallelismConformance):
    @pytest.fixture
    def component(self):
        return mocks.PARALLELISM


class Plain:
    def __init__(self, options, context):
        pass

    def apply(self, model, mesh):
        return model

    def divides(self, shape, size):
        return [f"{name} {count} does not divide by {size}" for name, count in shape.items() if count % size]


class Unnamed(Plain):
    axis = "two words"


class Strict(Plain):
    def divides(self, shape, size):
        return [*super().divides(shape, size), *([f"{size} is too few"] if size < 2 else [])]


class Lenient(Plain):
    def divides(self, shape, size):
        return []


class Scaling(Plain):
    def apply(self, model, mesh):
        with torch.no_grad():
            model.lm_head.weight.mul_(2)
        return model


class Wrapping(Plain):
    def apply(self, model, mesh):
        return Wrapped(model)


class Wrapped(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


BROKEN = {
    "test_its_axis_has_a_name": Unnamed,
    "test_one_device_divides_everything": Strict,
    "test_what_does_not_divide_is_named": Lenient,
    "test_on_one_device_the_model_is_the_same": Scaling,
    "test_parameters_keep_their_names": Wrapping,
}
RULES = [name for name in vars(ParallelismConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    descriptor = ParallelismDescriptor(
        name=cls.__name__.lower(),
        summary="an odd one",
        factory=f"{__name__}:{cls.__name__}",
        capabilities=ParallelismCapabilities(axis=getattr(cls, "axis", "toy")),
    )
    return {r.test: r.cause for r in run(ParallelismConformance, descriptor, only=only) if r.outcome == "failed"}


def test_a_plain_parallelism_keeps_every_rule():
    assert failed(Plain) == {}


def test_there_is_a_broken_parallelism_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_parallelism_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
