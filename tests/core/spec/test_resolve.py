"""From files to an experiment, and back."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from attrs import frozen
from ruamel.yaml import YAML

from areal_core import descriptors as d
from areal_core.errors import SpecError
from areal_core.manager import Manager
from areal_core.spec import examine, load_experiment

FULL = """\
name: full
seed: 3
model: {type: hf, path: ./model, lora: {rank: 4}}
inference: {torch: {kv_blocks: 9, nested: {names: [a]}}, sampling: {temperature: 0.7, stop: [x]}}
training:
  batch_size: 16
  learning_rate: 1e-3
  optimizer: {type: adamw, betas: [0.8, 0.9], warmup_steps: 3}
objective: {type: grpo, group_size: 4, kl: 0.1, reference: {every: 5}}
environments:
  - {name: a, type: jsonl, path: data.jsonl, fields: {question: q}, reward: {type: math, timeout: 3}}
  - {name: b, type: gsm8k, weight: 0.5}
pipeline: {max_staleness: 1, queue_size: 8}
evaluation: {every: 5, sampling: {temperature: 0.0}}
trackers: [jsonl, tensorboard]
stages:
  - {name: warmup, objective: ppo, training: {max_steps: 2}}
  - {name: rl, environments: [gsm8k]}
"""


@pytest.fixture
def full(write, manager):
    write("{}", "data.jsonl")

    def load(*overrides: str):
        return load_experiment(write(FULL), overrides, manager)

    return load


def test_an_experiment_holds_what_the_spec_says(full):
    experiment = full("seed=4")
    assert (experiment.name, experiment.seed, experiment.overrides) == ("full", 4, ("seed=4",))
    assert [t.name for t in experiment.trackers] == ["jsonl", "tensorboard"]
    stage = experiment.stages[0]
    assert stage.engine.options.kv_blocks == 9
    assert stage.optimizer.options.betas == (0.8, 0.9)
    assert stage.environments[0].environment.options.fields == {"question": "q"}
    assert stage.environments[0].reward.options.timeout == 3.0
    assert [e.weight for e in stage.environments] == [1.0, 0.5]
    assert stage.spec.model.lora.rank == 4


def test_the_resolved_spec_loads_to_the_same_experiment(full, manager, tmp_path):
    first = full()
    text = io.StringIO()
    YAML(typ="safe").dump(first.resolved, text)
    (tmp_path / "elsewhere").mkdir()
    resolved = tmp_path / "elsewhere" / "spec.yaml"
    resolved.write_text(text.getvalue())
    second = load_experiment(resolved, (), manager)
    assert second.resolved == first.resolved
    parts = ("model", "engine", "trainer", "transport", "mechanism", "objective", "optimizer", "environments")
    for part in parts:
        assert [getattr(s, part) for s in second.stages] == [getattr(s, part) for s in first.stages]


def test_every_resolved_value_has_an_origin(full, monkeypatch):
    monkeypatch.setenv("RATE", "1e-4")
    origins = full("training.learning_rate=${env:RATE}", "seed=9").origins
    assert origins["name"] == "spec.yaml:1"
    assert origins["seed"] == "--set"
    assert origins["training.learning_rate"] == "env:RATE"
    assert origins["training.grad_clip"] == "default"
    assert origins["weights.type"] == "chosen"
    assert origins["inference.torch.kv_blocks"] == "spec.yaml:4"
    assert origins["trackers.0.type"] == "spec.yaml:15"
    assert origins["stages.0.name"] == "spec.yaml:17"
    assert origins["stages.0.training.max_steps"] == "spec.yaml:17"
    assert origins["stages.0.objective.type"] == "spec.yaml:17"


def test_the_files_read_are_the_sources(build, write):
    write("seed: 1\n", "base.yaml")
    assert build("extends: base.yaml").sources == ("spec.yaml", "base.yaml")


def test_what_is_unavailable_fails_only_where_the_spec_is_to_run(write, manager):
    name = write("model: tiny\nenvironments: [gsm8k]\nmodel: tiny\n".replace("model: tiny\n", "", 1))
    load_experiment(name, (), manager, here=True)
    lacking = write("model: tiny\n")
    with pytest.raises(SpecError, match="no-environment"):
        load_experiment(lacking, (), manager, here=True)
    assert load_experiment(lacking, (), manager, here=False).stages[0].environments == ()


def test_a_spec_whose_components_are_not_installed_makes_no_experiment(write, manager):
    with pytest.raises(SpecError, match="not-installed"):
        load_experiment(write("model: tiny\ninference: vllm\n"), (), manager, here=False)


def test_a_file_that_cannot_be_read_raises_its_finding(tmp_path, manager):
    with pytest.raises(SpecError, match="no-such-file"):
        load_experiment(tmp_path / "gone.yaml", (), manager)


def test_a_check_that_raises_is_the_plugins_fault(errors, complete, extended):
    def broken(context):
        raise KeyError("oops")

    reward = d.RewardDescriptor(name="bad", summary="x", factory="areal_spec_fakes:make", check=broken)
    found = errors(complete.replace("gsm8k", "gsm8k, reward: bad"), manager=extended(reward))
    assert [entry.split()[0] for entry in found] == ["plugin-failed"]


PLUGIN = """\
from areal_plugins import RewardDescriptor, hookimpl

def make(options, context):
    return None

@hookimpl
def areal_rewards():
    return [RewardDescriptor(name="mine", summary="mine", factory=f"{__name__}:make")]
"""


@pytest.fixture
def built_in_only(monkeypatch):
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")


def test_a_local_plugin_is_loaded_from_beside_the_file_that_names_it(write, built_in_only):
    write(PLUGIN, "shared/mine.py")
    write("plugins: [mine.py]\n", "shared/base.yaml")
    name = write("extends: shared/base.yaml\nenvironments: [{type: nowhere, reward: mine}]\n")
    examined = examine(name)
    assert [f.code for f in examined.errors if "mine" in f.message] == []
    assert examined.resolved["plugins"] == [str(Path("shared/mine.py").resolve())]
    assert ("environments", 0) in examined.drafts[0].parts


@pytest.mark.parametrize(
    ("plugins", "code", "place"),
    [
        ("[./gone.py]", "no-such-file", "1:11"),
        ("./gone.py", "bad-type", "1:10"),
        ("[5]", "bad-type", "1:11"),
        ("[./broken.py]", "import-failed", "1:11"),
        ("[./misspelt.py]", "api-mismatch", "1:11"),
    ],
)
def test_a_local_plugin_that_cannot_be_used_is_an_error_with_its_cause(write, built_in_only, plugins, code, place):
    write("raise RuntimeError('at the root')\n", "broken.py")
    write(PLUGIN.replace("areal_rewards", "areal_reward"), "misspelt.py")
    found = {f"{f.location.line}:{f.location.column}": f for f in examine(write(f"plugins: {plugins}\n")).errors}
    assert found[place].code == code
    if code == "import-failed":
        assert "at the root" in found[place].message


def test_a_broken_plugin_is_an_error_only_for_the_spec_that_names_it(write, complete, extended):
    from areal_core.manager import PluginRecord, State

    record = PluginRecord("oddity", State.IMPORT_FAILED, "dist-oddity", "1", cause="ImportError: libx.so")
    manager = Manager([*extended().plugins, record])
    assert not examine(write(complete), (), manager).findings
    (finding,) = examine(write(complete + "inference: oddity\n"), (), manager).errors
    assert (finding.code, "libx.so" in finding.message) == ("import-failed", True)


@frozen
class Unresolved:
    """Options with a type that only a type checker would import."""

    n: Elsewhere = 0  # noqa: F821


@pytest.mark.parametrize("options", [int, "no_such_module:Options", Unresolved])
def test_options_that_cannot_be_used_are_the_plugins_fault(errors, complete, extended, options):
    reward = d.RewardDescriptor(name="bad", summary="x", factory="areal_spec_fakes:make", options=options)
    found = errors(complete.replace("gsm8k", "gsm8k, reward: bad"), manager=extended(reward))
    assert [entry.split()[0] for entry in found] == ["plugin-failed"]


def test_a_plugin_may_be_an_installed_module_by_its_name(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("plugins: [areal_plugins.testing.mocks]\nobjective: mock\n")
    found = examine(spec)
    assert not [finding for finding in found.findings if "mock" in finding.message]
    assert found.resolved["plugins"] == ["areal_plugins.testing.mocks"]


def test_a_plugin_module_that_does_not_exist_is_a_finding_where_it_is_named(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("plugins: [no_such_module]\n")
    (finding,) = [finding for finding in examine(spec).findings if finding.code == "import-failed"]
    assert "no_such_module" in finding.message
    assert finding.location.line == 1


def test_an_installed_plugin_that_a_spec_names_as_well_is_loaded_once(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("plugins: [areal_plugins.builtin]\nobjective: grpo\n")
    assert "ambiguous-component" not in {finding.code for finding in examine(spec).findings}
