"""Every spec that is shipped, and the five that existing users write, with the components that are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_core.errors import Severity
from areal_core.spec import examine

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))
SEEDS = sorted((ROOT / "tests/core/spec/seed").glob("*.yaml"))


@pytest.mark.parametrize("spec", [*SPECS, *SEEDS], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_spec_has_no_error(spec):
    assert examine(spec).errors == ()


ABSENT = {"not-installed", "blocked-plugin"}


@pytest.fixture
def read(monkeypatch):
    """A seed's spec, and the codes of what is found, with the built-in components alone."""
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")

    def of(name: str):
        examined = examine(ROOT / "tests/core/spec/seed" / f"{name}.yaml")
        return examined.drafts[0].spec, {f.code for f in examined.findings}

    return of


def test_amp_means_mixed_precision(read):
    spec, _ = read("amp")
    amp = spec.training.amp
    assert (amp.enabled, amp.dtype, amp.loss_scale) == (True, "bf16", "dynamic")


def test_gsm8k_grpo_npu_means_a_model_by_path_on_one_device_each(read):
    spec, codes = read("gsm8k_grpo_npu")
    assert (spec.model.type, spec.model.name) == ("hf", "Qwen3-0.6B")
    assert spec.model.options["path"] == "/models/qwen3-0.6b-npu"
    assert spec.resources.train.axes == spec.resources.infer.axes == {"dp": 1}
    assert (spec.training.batch_size, spec.training.learning_rate, spec.training.max_steps) == (32, 1e-5, 10000)
    assert type(spec.training.learning_rate) is float
    assert codes == {"missing-model", "no-environment"}


def test_moe_means_experts_over_dp_and_the_rest_over_tp(read):
    spec, codes = read("moe")
    assert (spec.model.type, dict(spec.model.options)) == ("moe", {"num_experts": 128, "top_k": 4})
    assert spec.parallel == {"expert": "dp", "other": "tp"}
    assert codes & ABSENT


def test_multitask_means_tasks_drawn_by_weight(read):
    spec, codes = read("multitask")
    assert [(e.name, e.type, e.weight) for e in spec.environments] == [
        ("math", "gsm8k", 0.6),
        ("code", "humaneval", 0.4),
    ]
    assert codes & ABSENT


def test_resources_means_two_machines_of_four_for_each_pool(read):
    spec, codes = read("resources")
    for pool in (spec.resources.train, spec.resources.infer):
        assert (pool.nodes, pool.devices, pool.axes) == (2, 8, {"dp": 8})
    assert "too-many-nodes" in codes


def test_the_npu_spec_names_what_this_machine_lacks():
    found = examine(ROOT / "specs/gsm8k_grpo_npu.yaml").findings
    assert {f.severity for f in found} == {Severity.UNAVAILABLE}
    assert {"missing-model", "not-installed", "no-such-path"} >= {f.code for f in found} - {"missing-device"}
