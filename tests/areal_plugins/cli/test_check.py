"""`areal-plugins check`."""

from __future__ import annotations

import json

import jsonschema
import pytest

from areal_core.errors import Finding, Severity
from areal_plugins.cli import main

BAD = "model: tiny\ntraining: {learning_rte: 1e-6}\n"
LACKING = "model: tiny\n"
GOOD = "model: tiny\nenvironments: [{type: jsonl, path: data.jsonl, test_fraction: 0.5, reward: exact}]\n"


@pytest.fixture(autouse=True)
def _specs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    for name, text in (("bad", BAD), ("lacking", LACKING), ("good", GOOD)):
        (tmp_path / f"{name}.yaml").write_text(text)
    (tmp_path / "data.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')


def test_a_good_spec_is_ok(capsys):
    assert main(["check", "good.yaml"]) == 0
    assert capsys.readouterr().out == "good.yaml: ok\n"


def test_an_error_is_shown_with_its_line_and_ends_with_2(capsys):
    assert main(["check", "bad.yaml"]) == 2
    shown = capsys.readouterr().out
    assert (
        "bad.yaml:2:12: error[unknown-key]: training.learning_rte\n"
        "2 | training: {learning_rte: 1e-6}\n"
        "  |            ^^^^^^^^^^^^ did you mean `learning_rate`?\n"
    ) in shown
    assert shown.endswith("1 error, 1 unavailable in bad.yaml\n")


def test_what_this_machine_lacks_counts_only_here(capsys):
    assert main(["check", "lacking.yaml"]) == 0
    assert main(["check", "lacking.yaml", "--here"]) == 2
    assert "unavailable[no-environment]" in capsys.readouterr().out


def test_several_specs_are_checked_together(capsys):
    assert main(["check", "good.yaml", "bad.yaml", "lacking.yaml"]) == 2
    shown = capsys.readouterr().out
    assert shown.startswith("good.yaml: ok\n")
    assert shown.endswith("1 error, 2 unavailable in 3 specs\n")


def test_overrides_apply(capsys):
    assert main(["check", "good.yaml", "--set", "training.batch_size=9"]) == 2
    assert "--set:1:21: error[batch-not-groups]" in capsys.readouterr().out


def test_deep_adds_what_only_importing_the_components_shows(monkeypatch, capsys):
    from areal_core.spec import deep

    lacking = Finding("import-failed", "engine/torch: no libx.so", severity=Severity.UNAVAILABLE)
    monkeypatch.setattr(deep, "import_findings", lambda examined: [lacking])
    assert main(["check", "good.yaml", "--deep"]) == 0
    assert main(["check", "good.yaml", "--deep", "--here"]) == 2
    assert "unavailable[import-failed]: engine/torch: no libx.so" in capsys.readouterr().out


def test_json_holds_everything(capsys):
    main(["check", "bad.yaml", "good.yaml", "--format", "json"])
    data = json.loads(capsys.readouterr().out)
    assert (data["errors"], data["unavailable"]) == (1, 1)
    by_spec = {entry["spec"]: entry["findings"] for entry in data["specs"]}
    assert by_spec["good.yaml"] == []
    (error,) = [f for f in by_spec["bad.yaml"] if f["severity"] == "error"]
    assert error == {
        "severity": "error",
        "code": "unknown-key",
        "message": "training.learning_rte",
        "hint": "did you mean `learning_rate`?",
        "path": ["training", "learning_rte"],
        "file": "bad.yaml",
        "line": 2,
        "column": 12,
        "width": 12,
    }


def test_sarif_has_a_rule_a_code_and_a_result_a_finding(capsys):
    main(["check", "bad.yaml", "--format", "sarif"])
    sarif = json.loads(capsys.readouterr().out)
    jsonschema.validate(sarif, SARIF)
    (run,) = sarif["runs"]
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert levels == {"unknown-key": "error", "no-environment": "note"}
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    place = next(r for r in run["results"] if r["level"] == "error")["locations"][0]["physicalLocation"]
    assert place == {
        "artifactLocation": {"uri": "bad.yaml"},
        "region": {"startLine": 2, "startColumn": 12, "endColumn": 24},
    }


def test_a_broken_plugin_is_one_warning_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "broken.py").write_text("raise RuntimeError('oops')\n")
    (tmp_path / "names.yaml").write_text("plugins: [broken.py]\n" + GOOD)
    assert main(["check", "names.yaml"]) == 2
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert shown.err.startswith("warning: plugin broken")
    assert "error[import-failed]" in shown.out


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}
SARIF = {
    "description": "What SARIF 2.1.0 requires of the properties that are used (sections 3.13 to 3.30).",
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["tool", "results"],
                "properties": {
                    "tool": {"required": ["driver"], "properties": {"driver": {"required": ["name"]}}},
                    "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
                    "results": {
                        "type": "array",
                        "items": {
                            "required": ["message"],
                            "properties": {
                                "ruleId": TEXT,
                                "ruleIndex": COUNT,
                                "level": {"enum": ["none", "note", "warning", "error"]},
                                "message": {"required": ["text"], "properties": {"text": TEXT}},
                            },
                        },
                    },
                },
            },
        },
    },
}
