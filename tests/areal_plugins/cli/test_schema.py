"""`areal-plugins schema`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from areal_plugins.cli import main

ROOT = Path(__file__).parents[3]
SPECS = sorted((ROOT / "specs").glob("*.yaml"))


SHIPPED = ROOT / "specs/areal.schema.json"
PLUGIN = "specs/quickstart_task.py"


def test_the_shipped_schema_is_that_of_the_built_in_components(monkeypatch, capsys):
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    assert main(["schema", "--plugin", str(ROOT / PLUGIN)]) == 0
    command = f"AREAL_PLUGINS_AUTOLOAD=0 areal-plugins schema --plugin {PLUGIN} > specs/areal.schema.json"
    assert json.loads(capsys.readouterr().out) == json.loads(SHIPPED.read_text()), f"run {command}"


def test_a_plugin_file_adds_its_components(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from areal_plugins import RewardDescriptor, hookimpl\n"
        "@hookimpl\n"
        "def areal_rewards():\n"
        "    return [RewardDescriptor(name='mine', summary='x', factory='x:y')]\n"
    )
    assert main(["schema", "--plugin", str(tmp_path / "mine.py")]) == 0
    assert "reward.mine" in json.loads(capsys.readouterr().out)["$defs"]


def test_the_shipped_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(json.loads(SHIPPED.read_text()))


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_is_valid(spec):
    found = jsonschema.Draft202012Validator(json.loads(SHIPPED.read_text())).iter_errors(
        YAML(typ="safe").load(spec.read_text())
    )
    assert [error.message for error in found] == []


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_points_editors_to_the_schema(spec):
    assert spec.read_text().startswith("# yaml-language-server: $schema=./areal.schema.json\n")
