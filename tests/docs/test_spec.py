"""`docs/spec.md` says what the code does."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from areal_core.spec import examine
from areal_core.spec.codes import CODES
from areal_core.spec.model import Spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/spec.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.M | re.S)
REPORTERS = {"error", "unavailable", "tell", "conflict", "_error", "_failed"}


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("spec_reference", ROOT / "docs/reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_code(reference):
    assert reference.tables(PAGE) == PAGE, "run python docs/reference.py"


def test_every_section_has_its_table(reference):
    sections = {hint.__name__ for hint in reference.forms.hints(Spec).values() if hasattr(hint, "__attrs_attrs__")}
    assert sections <= set(re.findall(r"<!-- table: (\w+) -->", PAGE))


@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_is_a_spec_without_errors(block, tmp_path):
    (tmp_path / "spec.yaml").write_text(block)
    assert examine(tmp_path / "spec.yaml").errors == ()


def used_codes() -> set[str]:
    """Every code that the loader's source gives to a finding."""
    found = set()
    for file in (ROOT / "core/areal_core/spec").glob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            texts = [text.value for argument in call.args[:2] for text in ast.walk(argument) if is_code(text)]
            found |= set(texts) if name in REPORTERS else set()
    return found


def is_code(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and bool(re.fullmatch(r"[a-z]+(-[a-z]+)+|encoding|incomplete", node.value))
    )


def test_every_code_that_is_used_is_documented():
    assert used_codes() - set(CODES) <= {"areal-plugins"}
    assert {"unknown-key", "bad-type", "batch-not-groups", "yaml-syntax"} <= used_codes()
