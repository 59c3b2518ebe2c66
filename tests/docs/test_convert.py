"""`docs/convert.md` has the tables of the code."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from areal_plugins.convert import FRAMEWORKS, framework

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/convert.md").read_text()


def test_the_tables_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("conversions", ROOT / "docs/conversions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.tables(PAGE) == PAGE, "run python docs/conversions.py"


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_every_key_that_is_known_is_on_the_page(name):
    keys = {key for rule in framework(name).rules for key in rule.keys}
    assert [key for key in keys if f"`{key}`" not in PAGE] == []
