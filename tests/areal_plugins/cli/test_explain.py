"""`areal-plugins explain`."""

from __future__ import annotations

import json

import pytest

from areal_plugins.cli import main

SPEC = """\
name: shown
model: {type: tiny}
platform: cpu
resources: {infer: {num_gpus: 2, parallel: dp}, rollout: {cpus: 3}}
objective: {type: grpo, group_size: 4}
training: {batch_size: 16}
environments:
  - {name: a, type: jsonl, path: data.jsonl, test_fraction: 0.5, reward: exact, weight: 3}
  - {name: b, type: jsonl, path: data.jsonl, test_fraction: 0.5, reward: exact}
stages:
  - {name: short, training: {max_steps: 5}}
  - {name: long}
"""


@pytest.fixture(autouse=True)
def _spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "data.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')


@pytest.fixture
def explained(capsys):
    def of(*arguments: str):
        assert main(["explain", "spec.yaml", "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    return of


def test_each_value_has_its_origin(explained):
    data = explained("--set", "training.learning_rate=1e-3")
    origins = {v["key"]: (v["value"], v["origin"]) for v in data["values"]}
    assert origins["name"] == ("shown", "spec.yaml:1")
    assert origins["training.learning_rate"] == (1e-3, "--set")
    assert origins["training.grad_clip"] == (1.0, "default")
    assert origins["weights.type"] == ("shm", "chosen")
    assert origins["stages.0.training.max_steps"] == (5, "spec.yaml:11")


def test_each_component_says_where_it_is_from_and_why_it_is_there(explained):
    components = {c["section"]: c for c in explained()["components"]}
    assert components["model"]["because"] == "spec.yaml:2"
    assert components["inference"]["because"] == "default"
    assert components["inference"]["plugin"].startswith("areal-plugins ")
    assert components["weights"]["component"] == "transport/shm"
    assert components["weights"]["because"].startswith("by tensors: the shortest way between trainer torch")
    assert "not memory: it stays in one process" in components["weights"]["because"]


def test_the_layout_of_devices_is_shown(explained):
    devices = explained()["devices"]
    assert devices["train"] == {"devices": 1, "nodes": 1, "parallel": {"dp": 1}}
    assert devices["infer"] == {"devices": 2, "nodes": 1, "parallel": {"dp": 2}}
    assert (devices["platform"], devices["rollout"]) == ("cpu", {"processes": 3})


def test_stages_show_what_they_consume(explained):
    short, long = explained()["stages"]
    assert (short["steps"], short["groups"], short["trajectories"]) == (5, 4, 80)
    assert long["environments"] == {"a": 0.75, "b": 0.25}


def test_workers_are_shown_with_their_devices_and_axes(explained):
    set_up = (
        "--set",
        "platform=cuda",
        "--set",
        "inference.type=vllm",
        "--set",
        "resources.infer={num_gpus: 4, parallel: {dp: 2, tp: 2}}",
    )
    workers = {worker["name"]: worker for worker in explained(*set_up)["devices"]["workers"]}
    assert workers["trainer"] == {"name": "trainer", "devices": [0], "parallel": {"dp": 1}}
    assert workers["engine-1"] == {"name": "engine-1", "devices": [3, 4], "parallel": {"tp": 2}}
    assert workers["rollout-2"] == {"name": "rollout-2", "devices": [], "parallel": {}}


def test_the_text_shows_all_of_it(capsys):
    assert main(["explain", "spec.yaml"]) == 0
    shown = capsys.readouterr().out
    memory = ("memory a device, ", "weight update", "who waits for what")
    for heading in ("shown, seed 0, from spec.yaml", "stages", "components", "devices", *memory, "values"):
        assert f"\n{heading}" in f"\n{shown}"


def test_what_is_wrong_goes_to_stderr_beside_what_is_known(capsys):
    assert main(["explain", "spec.yaml", "--set", "training.batch_size=x"]) == 2
    shown = capsys.readouterr()
    assert "error[bad-type]" in shown.err
    assert "components" in shown.out


def test_a_spec_that_cannot_be_read_is_only_an_error(capsys):
    assert main(["explain", "gone.yaml"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, "error[no-such-file]" in shown.err) == ("", True)
