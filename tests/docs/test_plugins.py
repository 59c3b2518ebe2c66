"""`docs/plugins.md` says what the code does."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

import areal_plugins
from areal_core import hookspecs
from areal_core.descriptors import KINDS
from areal_core.manager import State
from areal_plugins import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/plugins.md").read_text()


def blocks(language: str) -> list[str]:
    """Fenced blocks of a language that are no file of a walk."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.M | re.S)


@pytest.fixture
def brief(tmp_path, monkeypatch) -> Path:
    """A folder with the plugin of the first example."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "brief.py").write_text(blocks("python")[0])
    return tmp_path


def test_the_tables_are_those_of_the_code():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs/reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert reference.tables(PAGE) == PAGE, "run python docs/reference.py"


def test_every_hook_and_every_kind_has_its_place():
    hooks = {name for name in vars(hookspecs) if name.startswith("areal_")}
    assert hooks <= set(re.findall(r"`(areal_\w+)", PAGE))
    assert set(re.findall(r"<!-- table: kind_(\w+) -->", PAGE)) == set(KINDS)
    assert set(re.findall(r"plugins new my-\w+ --kind (\w+)`", PAGE)) == set(KINDS)


def test_every_state_is_explained():
    table = PAGE.split("| state | when | way out |")[1].split("\n\n")[0]
    assert set(re.findall(r"^\| `([^`]+)` \|", table, re.M)) == {state.value for state in State}


def test_what_is_called_public_is_there():
    paragraph = PAGE.split("**Public** is")[1].split("are not:")[0]
    modules = [
        name for name in re.findall(r"`(areal_plugins(?:\.\w+)?)`", paragraph) if name != "areal_plugins.builtin"
    ]
    assert len(modules) == 5
    assert all(importlib.util.find_spec(name) for name in modules)
    assert areal_plugins.__all__


def test_the_first_plugin_has_fewer_than_twenty_lines():
    assert 0 < len(blocks("python")[0].splitlines()) < 20


def test_the_first_plugin_is_found_and_its_spec_accepted(brief, capsys):
    lines = [json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(20)]
    (brief / "tasks.jsonl").write_text("\n".join(lines))
    (brief / "spec.yaml").write_text(blocks("yaml")[0])
    assert cli.main(["check", "spec.yaml"]) == 0


def test_the_first_plugin_runs_among_mocks(brief, capsys):
    (brief / "spec.yaml").write_text(blocks("yaml")[1])
    assert cli.main(["run", "spec.yaml"]) == 0
    assert "done: 4 steps" in capsys.readouterr().out


def test_the_fixture_runs_it_too(brief):
    from areal_plugins.testing.pipeline import run_mocked

    scope: dict = {}
    exec(blocks("python")[2], scope)
    scope["test_brief_in_a_run"](lambda spec, plugins: run_mocked(brief, spec, plugins))


def test_both_readmes_lead_here():
    assert all("(docs/plugins.md)" in (ROOT / name).read_text() for name in ("README.md", "README.zh-CN.md"))
