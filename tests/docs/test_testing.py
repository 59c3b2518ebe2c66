"""docs/testing.md: what it shows works, and what it lists is all there is."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from areal_core.spec import load_experiment
from areal_plugins.testing import pytest_plugin
from areal_plugins.testing.conformance import CLASSES

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(YAML,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def example(monkeypatch) -> ModuleType:
    """The first example as a module."""
    module = ModuleType("docs_testing_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(PYTHON[0], vars(module))
    return module


def test_the_example_passes(example, areal_run):
    example.test_it_runs(areal_run)


def test_the_conformance_example_is_a_class_of_tests():
    found: dict[str, type] = {}
    exec(PYTHON[1], found)
    assert [name for name in dir(found["TestExact"]) if name.startswith("test_")]


def test_the_spec_of_mocks_is_right(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text(YAML)
    assert load_experiment(spec).name == "run"


def test_every_fixture_is_listed():
    listed = set(re.findall(r"^\| `(areal_\w+)` \|", PAGE, re.MULTILINE))
    assert listed == {name for name in vars(pytest_plugin) if name.startswith("areal_")}


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_every_class_is_listed(kind):
    name = CLASSES[kind].partition(":")[2]
    assert f"| {kind} | `{name}` |" in PAGE
