"""A file beside the spec (`plugins: [./mine.py]`) may hold a component of any kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from areal_core.descriptors import KINDS
from areal_core.hookspecs import COMPONENT_HOOKS
from areal_plugins import cli

FILE = """
import attrs

from areal_plugins import hookimpl
from areal_plugins.testing import mocks

MADE = []


def make(options, context):
    from importlib import import_module

    module, _, name = mocks.{kind}.factory.partition(":")
    MADE.append(options)
    return getattr(import_module(module), name)(options, context)


@hookimpl
def {hook}():
    return [attrs.evolve(mocks.{kind}, name="mine", factory=f"{{__name__}}:make"{more})]
"""

SPEC = """
name: local
plugins: [areal_plugins.testing.mocks, ./mine.py]
model: mock
platform: mock
executor: mock
inference: {type: mock, max_concurrent: 16}
training: {backend: mock, batch_size: 8, max_steps: 3, optimizer: mock, mock: {optimizes: false}}
weights: mock
objective: {type: mock, group_size: 4}
environments: [{name: numbers, type: mock, reward: mock}]
trackers: [mock]
evaluation: {samples: 4}
"""

MINE = {
    "platform": "platform=mine",
    "model": "model=mine",
    "engine": "inference.type=mine",
    "trainer": "training.backend=mine",
    "parallelism": "resources={train: {parallel: {mine: 1}}}",
    "transport": "weights=mine",
    "environment": "environments=[{name: numbers, type: mine, reward: mock}]",
    "reward": "environments=[{name: numbers, type: mock, reward: mine}]",
    "objective": "objective={type: mine, group_size: 4}",
    "optimizer": "training.optimizer=mine",
    "executor": "executor=mine",
    "tracker": "trackers=[mine]",
}
NEVER_BUILT = {
    "parallelism": "no backend of mocks spreads a model",
    "optimizer": "the mock trainer builds one only where torch is to step a parameter",
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def write(folder: Path, kind: str) -> None:
    more = ', capabilities=mocks.ParallelismCapabilities(axis="mine")' if kind == "parallelism" else ""
    source = FILE.format(kind=kind.upper(), hook=COMPONENT_HOOKS[kind], more=more)
    (folder / "mine.py").write_text(source)


def test_every_kind_is_tried():
    assert set(MINE) == set(KINDS)


@pytest.mark.parametrize("kind", MINE)
def test_a_local_component_is_found_listed_checked_and_used(folder, capsys, kind):
    write(folder, kind)
    assert cli.main(["plugins", "show", f"{kind}/mine", "--plugin", "mine.py", "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["components"]
    assert shown["state"] == "ready"
    assert cli.main(["run", "spec.yaml", "--run-dir", "r", "--set", MINE[kind]]) == 0
    assert "done: 3 steps" in capsys.readouterr().out
    (record,) = [p for p in json.loads((folder / "r/provenance.json").read_text())["plugins"] if p["name"] == "mine"]
    assert record["entry"] == str(folder / "mine.py")
    assert bool(made(folder)) == (kind not in NEVER_BUILT)


def made(folder: Path) -> list[object]:
    """The options that the local factory was called with."""
    from areal_core.local import load_file

    return load_file(folder / "mine.py").MADE
