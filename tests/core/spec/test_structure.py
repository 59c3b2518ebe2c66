"""Strictness: nothing is coerced, and everything wrong is said at once, where it stands."""

from __future__ import annotations

import pytest
from attrs import field, frozen, validators

from areal_core import descriptors as d
from areal_core.errors import Severity


@pytest.fixture
def only(check):
    """The one error of a spec."""

    def error(text: str, *overrides: str, **more):
        (finding,) = check(text, *overrides, **more).errors
        return finding

    return error


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("training: {batch_size: «'32'}", "bad-type"),
        ("training: {batch_size: «1.9}", "bad-type"),
        ("training: {batch_size: «32.0}", "bad-type"),
        ("training: {batch_size: «true}", "bad-type"),
        ("training: {batch_size: «null}", "bad-type"),
        ("training: {«batch_size: [32]}", "bad-type"),
        ("training: {batch_size: «0}", "out-of-range"),
        ("training: {batch_size: «-8}", "out-of-range"),
        ("training: {learning_rate: «'1e-5'}", "bad-type"),
        ("training: {learning_rate: «true}", "bad-type"),
        ("training: {learning_rate: «.nan}", "not-finite"),
        ("training: {learning_rate: «.inf}", "not-finite"),
        ("training: {learning_rate: «0}", "out-of-range"),
        ("training: {activation_checkpointing: «'false'}", "bad-type"),
        ("training: {activation_checkpointing: «1}", "bad-type"),
        ("training: {amp: {dtype: «bf61}}", "bad-value"),
        ("training: {amp: {loss_scale: «dynamite}}", "bad-value"),
        ("training: {amp: {loss_scale: «0}}", "out-of-range"),
        ("training: «5", "bad-type"),
        ("«training: [torch]", "bad-type"),
        ("«training:", "bad-type"),
        ("name: «5", "bad-type"),
        ("name: «true", "bad-type"),
        ("seed: «-1", "out-of-range"),
        ("seed: «9223372036854775808", "out-of-range"),
        ("name: «../runs", "bad-value"),
        ("name: «.hidden", "bad-value"),
        ("name: «''", "bad-value"),
        ("environments: [{type: gsm8k, name: «a/b}]", "bad-value"),
        ("placement: «somewhere", "bad-value"),
        ("inference: {sampling: {stop: «END}}", "bad-type"),
        ("inference: {sampling: {stop: [«1]}}", "bad-type"),
        ("inference: {sampling: {top_p: «1.5}}", "out-of-range"),
        ("inference: {serve: {port: «70000}}", "out-of-range"),
        ("pipeline: {queue_size: «many}", "bad-value"),
        ("pipeline: {queue_size: «0}", "out-of-range"),
        ("resources: {train: {parallel: «3}}", "bad-type"),
        ("resources: {train: {parallel: {dp: «'1'}}}", "bad-type"),
        ("«environments: {type: gsm8k}", "bad-type"),
        ("environments: «gsm8k", "bad-type"),
        ("environments: [«5]", "bad-type"),
        ("trackers: «jsonl", "bad-type"),
        ("trackers: [«{}]", "missing-key"),
        ("model: {type: «5}", "bad-type"),
        ("model: {type: tiny, hidden_size: «64.0}", "bad-type"),
        ("model: {type: tiny, hidden_size: «1}", "out-of-range"),
        ("model: {type: tiny, architecture: «gpt}", "bad-value"),
        ("training: {optimizer: {«betas: [0.9]}}", "bad-value"),
        ("training: {optimizer: {betas: [0.9, «x]}}", "bad-type"),
        ("inference: {torch: {nested: {depth: «0}}}", "out-of-range"),
        ("inference: {torch: {nested: {names: [a, «1]}}}", "bad-type"),
        ("inference: {torch: «5}", "bad-type"),
    ],
)
def test_a_wrong_value_is_refused_where_it_stands(only, text, code):
    """« marks the place."""
    finding = only(text.replace("«", ""))
    assert (finding.code, finding.location.line, finding.location.column) == (code, 1, text.index("«") + 1)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("training: {learning_rate: 1e-5}", lambda spec: spec.training.learning_rate == 1e-5),
        ("training: {grad_clip: 1}", lambda spec: type(spec.training.grad_clip) is float),
        ("training: {grad_clip: null}", lambda spec: spec.training.grad_clip is None),
        ("training: {amp: {loss_scale: 1024}}", lambda spec: spec.training.amp.loss_scale == 1024.0),
        ("training: {amp: {loss_scale: dynamic}}", lambda spec: spec.training.amp.loss_scale == "dynamic"),
        ("resources: {train: {parallel: dp}}", lambda spec: spec.resources.train.axes == {"dp": 1}),
        ("parallel: {expert: dp, other: tp}", lambda spec: spec.parallel == {"expert": "dp", "other": "tp"}),
        ("pipeline: {queue_size: 16}", lambda spec: spec.pipeline.queue_size == 16),
        ("name: no", lambda spec: spec.name == "no"),
        ("inference: {sampling: {stop: [a, b]}}", lambda spec: spec.inference.sampling.stop == ("a", "b")),
        ("trackers: []", lambda spec: spec.trackers == ()),
    ],
)
def test_a_right_value_is_read_as_it_is(build, text, read):
    spec = build("", text.replace(": ", "=", 1)).stages[0].spec
    assert read(spec)


def test_all_findings_come_at_once(errors):
    text = """\
training:
  batch_size: '32'
  learning_rte: 1e-6
  max_steps: 0
model: {type: hff}
seed: 1
seed: 2
pipeline: {max_staleness: -1}
evaluation: {sampling: {min_new_tokens: 9, max_new_tokens: 5}}
"""
    assert errors(text) == [
        "bad-type at 2:15",
        "unknown-key at 3:3",
        "out-of-range at 4:14",
        "unknown-component at 5:15",
        "duplicate-key at 7:1",
        "out-of-range at 8:27",
        "lengths-crossed at 9:41",
    ]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("training: {learning_rte: 1e-6}", "did you mean `learning_rate`?"),
        ("training: {learning-rate: 1e-6}", "did you mean `learning_rate`?"),
        ("learning_rate: 1e-6", "did you mean `training.learning_rate`?"),
        ("inference: {temperature: 1}", "did you mean `inference.sampling.temperature`?"),
        ("objective: {max_staleness: 2}", "did you mean `pipeline.max_staleness`?"),
        ("trainning: {}", "did you mean `training`?"),
        ("training: {type: torch}", "did you mean `backend`?"),
        ("objective: {type: grpo, clpi: 0.1}", "did you mean `clip`?"),
        ("inference: {torch: {kv_block: 4}}", "did you mean `kv_blocks`?"),
        ("inference: {torhc: {}}", "did you mean `torch`?"),
        ("training: {amp: {zzz: 1}}", "there are: dtype, enabled, loss_scale"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(only, text, hint):
    finding = only(text)
    assert (finding.code, finding.hint) == ("unknown-key", hint)


def test_a_component_that_nobody_knows_is_an_error_with_the_nearest_name(only):
    finding = only("inference: {type: torhc}")
    assert (finding.code, finding.hint) == ("unknown-component", "did you mean `torch`?")


@pytest.mark.parametrize(
    "text",
    [
        "inference: {type: vllm, vllm: {gpu_memory_utilization: 0.8}}",
        "inference: vllm",
        "training: {backend: fsdp2, fsdp2: {}}",
        "environments: [{type: humaneval, anything: 1}]",
        "model: {type: moe, num_experts: 128}",
        "executor: {type: ray, ray: {address: auto}}",
    ],
)
def test_a_known_component_that_is_not_installed_is_unavailable_with_a_pip_line(check, text):
    findings = [f for f in check(text).findings if f.code == "not-installed"]
    assert [f.severity for f in findings] == [Severity.UNAVAILABLE]
    assert findings[0].hint.startswith("pip install areal-plugins-")
    assert not check(text).errors


def test_blocks_of_other_components_are_legal_and_checked_where_they_are_installed(errors, extended):
    assert errors("inference: {type: torch, vllm: {anything: [1, 2]}}") == []
    assert errors("inference: {type: stranger, torch: {kv_blocks: 0}}") == ["out-of-range at 1:48"]


def test_the_selected_block_gives_the_options(build):
    assert build("inference: {torch: {kv_blocks: 7}}").stages[0].engine.options.kv_blocks == 7
    assert build("inference: torch").stages[0].engine.options.kv_blocks == 512


@pytest.mark.parametrize(
    "text",
    ["objective: sft", "inference: torch", "training: plain", "platform: cpu", "executor: local", "weights: shm"],
)
def test_a_bare_name_is_short_for_a_type(build, text):
    key, name = text.split(": ")
    stage = build(text).stages[0]
    found = {"objective": stage.objective, "inference": stage.engine, "training": stage.trainer}
    found |= {"platform": stage.platform, "executor": build(text).executor, "weights": stage.transport}
    assert found[key].name == name


def test_a_missing_option_is_an_error_in_a_section_that_is_written(only):
    finding = only("model: {type: hf}")
    assert (finding.code, finding.message, finding.hint) == (
        "missing-key",
        "model.path is missing",
        "Directory or hub id.",
    )


def test_a_section_that_is_not_written_and_has_no_default_is_unavailable(check):
    examined = check("seed: 1")
    assert {f.code for f in examined.findings} == {"incomplete", "no-environment"}
    assert not examined.errors


def test_a_path_is_taken_from_the_file_that_names_it(check, write):
    write("{}", "data/train.jsonl")
    write("environments: [{type: jsonl, path: train.jsonl, reward: math}]\n", "data/base.yaml")
    examined = check("extends: data/base.yaml\nmodel: tiny\n")
    assert not examined.findings
    options = examined.experiment.stages[0].environments[0].environment.options
    assert options.path.endswith("/data/train.jsonl")
    assert options.path.startswith("/")


def test_a_path_of_an_override_is_taken_from_the_current_directory(check, write):
    write("{}", "here.jsonl")
    write("environments: [{type: jsonl, path: gone.jsonl, reward: math}]\n", "deep/base.yaml")
    text = "extends: deep/base.yaml\nmodel: tiny\n"
    assert [f.code for f in check(text).findings] == ["no-such-path"]
    assert not check(text, "environments.0.path=here.jsonl").findings


def test_a_missing_path_is_unavailable_and_says_where_it_was_looked_for(check, tmp_path):
    examined = check("model: tiny\nenvironments: [{type: jsonl, path: gone.jsonl, reward: math}]\n")
    (finding,) = examined.findings
    assert (finding.code, finding.severity, finding.location.line) == ("no-such-path", Severity.UNAVAILABLE, 2)
    assert finding.hint == f"it would be {tmp_path}/gone.jsonl"


@pytest.mark.parametrize("component", ["model: {type: hf, path: ''}", "environments: [{type: jsonl, path: ''}]"])
def test_an_empty_text_is_no_path(check, component):
    (finding,) = check(component).errors
    assert (finding.code, finding.message.endswith("not an empty text")) == ("bad-value", True)


def test_a_text_that_may_be_a_path_stays_a_name_unless_it_exists(build, write):
    def path(text: str) -> str:
        return build("", f"model={{type: hf, path: {text}}}").stages[0].model.options.path

    assert path("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    write("{}", "Qwen/Qwen3-0.6B/config.json")
    assert path("Qwen/Qwen3-0.6B").startswith("/")
    assert path("./elsewhere").endswith("/elsewhere")


def test_an_unknown_variable_is_one_finding_and_no_more(check):
    examined = check(
        "training: {batch_size: '${env:AREAL_NOT_SET}'}\nmodel: {type: hf, path: '${env:AREAL_NOT_SET}'}\n"
    )
    codes = [f.code for f in examined.findings if f.code not in ("no-environment",)]
    assert codes == ["missing-variable", "missing-variable"]


def test_a_plugins_own_validator_speaks_at_its_section(only, extended):
    @frozen
    class Options:
        odd: int = field(default=1, validator=validators.in_([1, 3]))

    reward = d.RewardDescriptor(name="odd", summary="x", factory="areal_spec_fakes:make", options=Options)
    text = "environments: [{type: gsm8k, reward: {type: odd, odd: 2}}]"
    finding = only(text, manager=extended(reward))
    assert finding.code == "bad-value"
    assert "'odd' must be in [1, 3]" in finding.message


def test_a_type_beyond_the_usual_ones_is_read_by_cattrs(check, only, extended):
    import enum

    class Colour(enum.Enum):
        RED = "red"

    @frozen
    class Options:
        colour: Colour = Colour.RED

    Options.__annotations__["colour"] = Colour
    reward = d.RewardDescriptor(name="odd", summary="x", factory="areal_spec_fakes:make", options=Options)
    good = "model: tiny\nenvironments: [{type: gsm8k, reward: {type: odd, colour: red}}]"
    experiment = check(good, manager=extended(reward)).experiment
    assert experiment.stages[0].environments[0].reward.options.colour is Colour.RED
    assert only(good.replace("red", "blue"), manager=extended(reward)).code == "bad-type"


def test_two_plugins_with_one_name_are_an_error_that_names_both(only, extended):
    other = d.RewardDescriptor(name="math", summary="x", factory="a:b")
    finding = only("environments: [{type: gsm8k, reward: math}]", manager=extended(other))
    assert finding.code == "ambiguous-component"
    assert "offered by" in finding.message
