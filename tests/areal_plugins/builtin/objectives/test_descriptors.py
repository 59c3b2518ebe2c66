from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import attrs
import pytest

from areal_core.spec.model import InferenceSpec, ObjectiveSpec, ReferenceSpec, SamplingSpec, Spec
from areal_plugins import CheckContext, Finding, ObjectiveDescriptor
from areal_plugins.builtin.objectives import DESCRIPTORS
from areal_plugins.builtin.objectives.options import PolicyOptions

BY_NAME = {descriptor.name: descriptor for descriptor in DESCRIPTORS}
every_descriptor = pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda d: d.name)


def findings(name: str, options: dict[str, Any] | None = None, **section: Any) -> list[Finding]:
    """What `check` says of an objective with these private options in a spec with this objective section."""
    descriptor = BY_NAME[name]
    spec = Spec(
        objective=ObjectiveSpec(type=name, **section),
        inference=InferenceSpec(sampling=SamplingSpec(max_new_tokens=100)),
    )
    context = CheckContext(spec, descriptor.options(**options or {}), ("objective",))
    return list(descriptor.check(context)) if descriptor.check else []


def test_descriptors_load_neither_numpy_nor_torch() -> None:
    code = "import sys, areal_plugins.builtin.objectives; print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_live_modules_do_not_load_torch() -> None:
    modules = ", ".join(descriptor.factory.split(":")[0] for descriptor in DESCRIPTORS)
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_names_are_those_of_the_field() -> None:
    names = {"grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "ppo", "sft"}
    assert set(BY_NAME) == names


@every_descriptor
def test_factories_exist(descriptor: ObjectiveDescriptor) -> None:
    module, attribute = descriptor.factory.split(":")
    assert callable(getattr(import_module(module), attribute))


@every_descriptor
def test_every_option_is_documented(descriptor: ObjectiveDescriptor) -> None:
    assert all(option.metadata["doc"].endswith(".") for option in attrs.fields(descriptor.options))


@every_descriptor
def test_every_policy_gradient_objective_has_the_common_options(descriptor: ObjectiveDescriptor) -> None:
    assert descriptor.name == "sft" or issubclass(descriptor.options, PolicyOptions)


@every_descriptor
def test_a_fitting_spec_has_no_findings(descriptor: ObjectiveDescriptor) -> None:
    assert findings(descriptor.name) == []


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo"])
def test_objectives_that_compare_members_need_groups(name: str) -> None:
    assert BY_NAME[name].capabilities.min_group_size == 2


def test_ppo_needs_a_critic() -> None:
    assert [name for name, descriptor in BY_NAME.items() if descriptor.capabilities.critic] == ["ppo"]


def test_reinforce_pp_needs_a_group_for_its_baseline_only() -> None:
    assert findings("reinforce++", group_size=1) == []
    (finding,) = findings("reinforce++", {"baseline": "group"}, group_size=1)
    assert (finding.code, finding.dotted) == ("group-too-small", "objective.baseline")


def test_kl_without_a_reference_is_found() -> None:
    (finding,) = findings("grpo", {"kl": 0.1})
    assert (finding.code, finding.dotted) == ("missing-reference", "objective.kl")
    assert findings("grpo", {"kl": 0.1}, reference=ReferenceSpec()) == []


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_an_estimator_without_the_right_gradient_in_the_reward_is_found(estimator: str) -> None:
    (finding,) = findings("grpo", {"kl_in": "reward", "kl_estimator": estimator})
    assert (finding.code, finding.dotted) == ("biased-estimator", "objective.kl_estimator")


def test_an_overlong_buffer_beyond_the_longest_answer_is_found() -> None:
    assert findings("dapo", {"overlong_buffer": 100}) == []
    (finding,) = findings("dapo", {"overlong_buffer": 101})
    assert (finding.code, finding.dotted) == ("buffer-too-long", "objective.overlong_buffer")


def test_all_findings_come_at_once() -> None:
    codes = [finding.code for finding in findings("dapo", {"kl": 0.1, "overlong_buffer": 101})]
    assert codes == ["missing-reference", "buffer-too-long"]


def test_paths_follow_the_section_into_a_stage() -> None:
    descriptor = BY_NAME["grpo"]
    assert descriptor.check is not None
    context = CheckContext(Spec(), descriptor.options(kl=0.1), ("stages", 1, "objective"))
    (finding,) = descriptor.check(context)
    assert finding.dotted == "stages.1.objective.kl"
