"""`areal-plugins convert`."""

from __future__ import annotations

import json

import pytest

from areal_plugins.cli import main

CONFIG = "model_name_or_path: org/model\ndataset_name: a/b\nmin_p: 0.1\nlearning_rte: 1\n"


@pytest.fixture(autouse=True)
def _config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.yaml").write_text(CONFIG)


def test_the_spec_goes_to_standard_output_and_the_lists_to_standard_error(capsys):
    assert main(["convert", "trl", "theirs.yaml"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("# Converted from theirs.yaml: a GRPO config of TRL.\n")
    assert "carried over:\n  1: model_name_or_path -> model.type: hf\n" in shown.err
    assert "their default is written down:\n" in shown.err
    assert "CANNOT be carried over:\n" in shown.err
    assert "  3: min_p: there is no min_p\n" in shown.err
    assert "UNKNOWN keys:\n  4: learning_rte: " in shown.err


def test_the_spec_can_be_written_to_a_file(tmp_path, capsys):
    assert main(["convert", "trl", "theirs.yaml", "-o", "spec.yaml"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["check", "spec.yaml"]) == 0


def test_json_has_everything(capsys):
    assert main(["convert", "trl", "theirs.yaml", "--json", "--tasks", "100"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert "training:" in data["spec"]
    assert {"keys": ["model_name_or_path"], "line": 1, "to": "model.path", "note": "", "value": "org/model"} in data[
        "carried"
    ]
    assert [entry["keys"] for entry in data["unknown"]] == [["learning_rte"]]
    assert [entry["value"] for entry in data["default"] if entry["to"] == "training.learning_rate"] == [1e-6]


@pytest.mark.parametrize("arguments", [["other", "theirs.yaml"], ["trl", "theirs.yaml", "--tasks", "0"]])
def test_what_makes_no_sense_is_refused(arguments):
    with pytest.raises(SystemExit) as refused:
        main(["convert", *arguments])
    assert refused.value.code == 2


def test_a_file_that_is_not_there_is_an_error(capsys):
    assert main(["convert", "verl", "gone.yaml"]) == 2
    assert "error[no-such-file]" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["theirs.yaml", "./theirs.yaml", "link.yaml"])
def test_the_config_itself_is_never_overwritten(tmp_path, capsys, output):
    (tmp_path / "link.yaml").symlink_to("theirs.yaml")
    assert main(["convert", "trl", "theirs.yaml", "-o", output]) == 2
    assert "would be lost" in capsys.readouterr().err
    assert (tmp_path / "theirs.yaml").read_text() == CONFIG


def test_a_count_is_a_whole_number(capsys):
    with pytest.raises(SystemExit) as end:
        main(["convert", "trl", "theirs.yaml", "--tasks", "x"])
    assert end.value.code == 2
    assert "'x' is no whole number" in capsys.readouterr().err


def test_keys_with_control_characters_do_not_act_on_the_terminal(tmp_path, capsys):
    (tmp_path / "theirs.yaml").write_text('"k\\e[2J": 1\n')
    assert main(["convert", "trl", "theirs.yaml"]) == 0
    shown = capsys.readouterr()
    assert "\x1b" not in shown.out + shown.err


def test_json_holds_no_infinities(tmp_path, capsys):
    (tmp_path / "theirs.yaml").write_text("temperature: .inf\nbeta: .nan\n")
    assert main(["convert", "trl", "theirs.yaml", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["carried"]
    values = {
        entry["keys"][0]: entry["value"]
        for entry in entries
        if entry["to"] in ("objective.kl", "inference.sampling.temperature")
    }
    assert values == {"temperature": ".inf", "beta": None}
