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


@pytest.fixture(scope="module")
def shipped():
    return json.loads(SHIPPED.read_text())


def objects(node, path=""):
    """Every schema of an object with named keys, and where it stands."""
    if isinstance(node, dict):
        if node.get("type") == "object":
            yield path, node
        for key, child in node.items():
            yield from objects(child, f"{path}/{key}")
    elif isinstance(node, list):
        for index, child in enumerate(node):
            yield from objects(child, f"{path}/{index}")


def is_absent(node) -> bool:
    """Options of a component that is not installed."""
    described = [node, *(node.get("properties", {}).get(key, {}) for key in ("type", "backend"))]
    return any(part.get("description", "").startswith("Not installed") for part in described)


def test_no_object_takes_a_key_that_is_not_known(shipped):
    for path, node in objects(shipped):
        free = "properties" not in node and isinstance(node.get("additionalProperties"), dict)  # keys are the user's
        assert free or node.get("additionalProperties") is False or is_absent(node), path


def referred(shipped, node):
    """The schema, with what it refers to."""
    found = shipped
    for part in filter(None, node.get("$ref", "").removeprefix("#").split("/")):
        found = found[part]
    return {**(found if "$ref" in node else {}), **node}


def is_described(shipped, node) -> bool:
    found = referred(shipped, node)
    alternatives = found.get("anyOf", [])
    return "description" in found or (alternatives and all(is_described(shipped, each) for each in alternatives))


def test_every_key_has_a_description(shipped):
    missing = [
        f"{path}/{key}"
        for path, node in objects(shipped)
        for key, child in node.get("properties", {}).items()
        if not is_described(shipped, child)
    ]
    assert missing == []


def test_every_key_of_the_model_has_its_default(shipped):
    for kind, key, default in (
        ("trainer", "batch_size", 32),
        ("trainer", "grad_clip", 1.0),
        ("engine", "max_concurrent", 64),
        ("objective", "group_size", 8),
        ("transport", "verify", True),
        ("model", "dtype", "auto"),
        ("platform", "type", "auto"),
    ):
        assert shipped["$defs"][f"{kind}.{key}"]["default"] == default
    assert shipped["properties"]["placement"]["default"] == "disjoint"
    assert shipped["$defs"]["PipelineSpec"]["properties"]["max_staleness"]["default"] == 4
    assert shipped["$defs"]["engine.torch"]["properties"]["prefill_tokens"]["default"] == 512


def test_nothing_is_defined_that_is_not_used(shipped):
    text = SHIPPED.read_text()
    unused = [name for name in shipped["$defs"] if f'"#/$defs/{name}' not in text]
    assert [name for name in unused if shipped["$defs"][name].get("properties") != {}] == []
