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


@pytest.fixture(scope="module")
def schema():
    from areal_core.manager import Manager
    from areal_core.spec.schema import schema

    made = schema(Manager.discover())
    jsonschema.Draft202012Validator.check_schema(made)
    return made


def test_the_command_prints_the_schema(schema, capsys):
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == schema


def test_a_plugin_file_adds_its_components(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from areal_plugins import RewardDescriptor, hookimpl\n"
        "@hookimpl\n"
        "def areal_rewards():\n"
        "    return [RewardDescriptor(name='mine', summary='x', factory='x:y')]\n"
    )
    assert main(["schema", "--plugin", str(tmp_path / "mine.py")]) == 0
    assert "reward.mine" in json.loads(capsys.readouterr().out)["$defs"]


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_is_valid(schema, spec):
    found = jsonschema.Draft202012Validator(schema).iter_errors(YAML(typ="safe").load(spec.read_text()))
    assert [error.message for error in found] == []


@pytest.mark.parametrize("spec", SPECS, ids=lambda path: path.stem)
def test_every_shipped_spec_points_editors_to_the_schema(spec):
    assert "yaml-language-server: $schema=" in spec.read_text().partition("\n")[0]
