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


EVERYTHING = """\
model: tiny
training: {learning_rte: 1e-6, batch_size: '8'}
weights: xccl
environments: [{type: jsonl, path: gone.jsonl, test_fraction: 0.5, reward: exact}]
seed: ${env:AREAL_NO_SUCH}
extends: base.yaml
"""


@pytest.fixture
def everything(tmp_path, capsys):
    """What each format says of a spec with findings of every sort, one of them in its parent."""
    (tmp_path / "everything.yaml").write_text(EVERYTHING)
    (tmp_path / "base.yaml").write_text("pipeline: {max_stalenes: 2}\n")

    def as_json(form: str):
        assert main(["check", "everything.yaml", "--set", "training.max_steps=0", "--format", form]) == 2
        return json.loads(capsys.readouterr().out)

    return as_json


def test_both_machine_formats_hold_every_finding_whole(everything):
    findings = everything("json")["specs"][0]["findings"]
    assert {f["code"] for f in findings} >= {
        "unknown-key", "bad-type", "out-of-range", "not-installed", "no-such-path", "missing-variable",
    }  # fmt: skip
    assert {f["file"] for f in findings} == {"everything.yaml", "base.yaml", "--set"}
    results = everything("sarif")["runs"][0]["results"]
    keys = ("code", "severity", "hint", "path", "file", "line", "column", "width")
    assert [whole(result) for result in results] == [{key: f[key] for key in keys} for f in findings]


def whole(result):
    place = result["locations"][0]["physicalLocation"]
    region = place["region"]
    return {
        "code": result["ruleId"],
        **result["properties"],
        "file": place["artifactLocation"]["uri"],
        "line": region["startLine"],
        "column": region["startColumn"],
        "width": region["endColumn"] - region["startColumn"],
    }


def test_sarif_is_of_the_structure_that_2_1_0_requires(everything):
    sarif = everything("sarif")
    jsonschema.validate(sarif, SARIF)
    rules = sarif["runs"][0]["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)


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
PLACE = {"type": "integer", "minimum": 1}


def closed(required: list[str], **properties):
    """An object of these properties alone, as everywhere in the standard's own schema."""
    return {"type": "object", "required": required, "properties": properties, "additionalProperties": False}


def several(items):
    return {"type": "array", "items": items}


MESSAGE = closed(["text"], text=TEXT)
ARTIFACT = closed(["uri"], uri={"type": "string", "pattern": r"^[^\s\\\\]+$"})
REGION = closed(["startLine"], startLine=PLACE, startColumn=PLACE, endColumn=PLACE)
RESULT = closed(
    ["message"],
    ruleId=TEXT,
    ruleIndex=COUNT,
    level={"enum": ["none", "note", "warning", "error"]},
    message=MESSAGE,
    locations=several(closed([], physicalLocation=closed([], artifactLocation=ARTIFACT, region=REGION))),
    properties={"type": "object"},
)
RULE = closed(["id"], id=TEXT, shortDescription=MESSAGE)
DRIVER = closed(["name"], name=TEXT, version=TEXT, rules={**several(RULE), "uniqueItems": True})
RUN = closed(
    ["tool"],
    tool=closed(["driver"], driver=DRIVER),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=several(RESULT),
)
SARIF = closed(["version", "runs"], **{"$schema": TEXT}, version={"const": "2.1.0"}, runs=several(RUN))
"""What SARIF 2.1.0 (sections 3.13 to 3.49) says of the objects and properties that are used."""


def test_a_sarif_address_is_a_uri(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["check", "a b#%.yaml", "--format", "sarif"]) == 2
    place = json.loads(capsys.readouterr().out)["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b%23%25.yaml"
