"""The rules for every kind: components that keep them, and for each rule one that does not."""

from typing import Any

import pytest
from attrs import define, field, frozen

from areal_core.descriptors import Component
from areal_core.workers import build
from areal_plugins import RewardCapabilities, RewardDescriptor
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import Case, Conformance
from areal_plugins.testing.conformance.running import run

MOCKS = [value for value in vars(mocks).values() if isinstance(value, Component)]


class TestMocks(Conformance):
    @pytest.fixture(params=MOCKS, ids=lambda descriptor: descriptor.kind)
    def component(self, request):
        return request.param


@frozen
class Plain:
    size: int = field(default=1, metadata={"doc": "How much."})


@frozen
class Undocumented:
    size: int = 1


@frozen
class Untyped:
    size: Any = field(default=1, metadata={"doc": "How much."})


@define
class Mutable:
    size: int = field(default=1, metadata={"doc": "How much."})


@frozen
class Swallowing:
    size: int = field(default=1, metadata={"doc": "How much."})


@frozen
class Forgetful:
    """Cannot be rebuilt from what it is written as."""

    size: int = field(default=1, metadata={"doc": "How much."}, converter=lambda value: value + 1)


_strict = build._converter()
_strict.register_structure_hook(Swallowing, lambda given, _: Swallowing(given.get("size", 1)))


def make(options, context):
    """A factory."""


def reward(**changes):
    return RewardDescriptor(**{"name": "odd", "summary": "an odd one", "factory": f"{__name__}:make"} | changes)


DESCRIBED = {
    "test_descriptor_is_of_its_kind": reward(name="a/b"),
    "test_summary_says_what_it_is": reward(summary="two\nlines"),
    "test_api_version_is_this_one": reward(api_version=99),
    "test_requirements_are_met": reward(requires=("no-such-distribution>=1",)),
    "test_capabilities_are_of_the_kind": reward(capabilities=RewardCapabilities(isolated="no")),
    "test_options_are_frozen": reward(options=Mutable),
    "test_options_are_documented": reward(options=Undocumented),
    "test_options_are_typed": reward(options=Untyped),
    "test_unknown_options_are_refused": reward(options=Swallowing),
    "test_options_cross_to_a_worker": reward(options=Forgetful),
    "test_factory_can_be_called": reward(factory=f"{__name__}:DESCRIBED"),
}
DESCRIPTION = [name for name in vars(Conformance) if name.startswith("test_") and "heavy" not in name]


def failed(descriptor):
    return [r.test for r in run(Conformance, descriptor, only=DESCRIPTION) if r.outcome == "failed"]


def test_a_plain_component_keeps_every_rule():
    assert failed(reward(options=Plain)) == []


def test_there_is_a_broken_component_for_every_rule():
    assert set(DESCRIBED) == set(DESCRIPTION)


@pytest.mark.parametrize("rule", DESCRIBED)
def test_a_description_that_breaks_a_rule_fails_that_rule_alone(rule):
    assert failed(DESCRIBED[rule]) == [rule]


PLUGIN = """
{imports}
from areal_plugins import RewardDescriptor, hookimpl

@hookimpl
def areal_rewards():
    return [RewardDescriptor(name="local", summary="a local one", factory={factory})]

def make(options, context):
    pass
"""


@pytest.mark.parametrize(
    ("imports", "factory", "cause"),
    [
        ("", 'f"{__name__}:make"', ""),
        ("import numpy", 'f"{__name__}:make"', "imports numpy"),
        ("", '"no_such_module:make"', "cannot import its factory: ModuleNotFoundError: No module named"),
    ],
    ids=["light", "heavy", "broken"],
)
def test_a_plugin_that_is_heavy_or_broken_in_a_fresh_process_is_caught(imports, factory, cause, tmp_path):
    path = tmp_path / "local.py"
    path.write_text(PLUGIN.format(imports=imports, factory=factory))
    case = Case("reward/local", files=(str(path),))
    (result,) = run(Conformance, case, only=["test_loading_imports_nothing_heavy"])
    assert result.outcome == ("failed" if cause else "passed")
    assert cause in result.cause
