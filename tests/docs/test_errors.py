"""`docs/errors.md` has every code, and each example gives its code at a place."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path

import pytest

from areal_core.spec.codes import CODES
from areal_plugins.builtin.codes import CODES as COMPONENT_CODES
from areal_plugins.cli import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/errors.md").read_text()
ENTRIES = dict(re.findall(r"^### `([a-z-]+)`\n(.*?)(?=^##|\Z)", PAGE, re.M | re.S))
BLOCK = re.compile(r"^```(\w+) ?([\w./-]*)\n(.*?)^```$", re.M | re.S)
COMMAND = "areal-plugins check spec.yaml"


def blocks(text: str) -> list[tuple[str, str, str]]:
    """Language, file name and content of each fenced block."""
    return BLOCK.findall(text)


REST, STRANGERS = (content for _, _, content in blocks(PAGE.partition("\n## ")[0]))


def completed(spec: str) -> str:
    """The spec with the sections of `rest` that it does not write."""
    sections = re.split(r"^(?=\w)", REST, flags=re.M)[1:]
    return spec + "".join(s for s in sections if not re.search(rf"^{s.partition(':')[0]}:", spec, re.M))


def lay_out(entry: str) -> str:
    """Write the files of an example, and return the spec as the page shows it."""
    Path("data.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    Path("strangers.py").write_text(STRANGERS)
    shown = ""
    for language, name, content in blocks(entry):
        if language == "yaml" and name in ("", "as-is"):
            shown = content
            Path("spec.yaml").write_text(content if name else completed(content))
        elif language != "sh":
            Path(name).parent.mkdir(exist_ok=True)
            Path(name).write_text(content)
    return shown


def command(entry: str, monkeypatch) -> list[str]:
    """The arguments of the example's check, once the lines before it have run and its variables are set."""
    lines = [line for language, _, content in blocks(entry) if language == "sh" for line in content.splitlines()]
    for line in lines[:-1]:
        subprocess.run(line, shell=True, check=True)
    variables, _, overrides = (lines[-1] if lines else COMMAND).partition(COMMAND)
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("=", 1))
    return ["check", "spec.yaml", "--format", "json", *overrides.split()]


def test_the_page_and_the_codes_agree():
    assert list(ENTRIES) == [*CODES, *COMPONENT_CODES]


@pytest.mark.parametrize("code", ENTRIES)
def test_an_entry_is_meaning_example_and_way_out(code):
    meaning, *_, way_out = ENTRIES[code].strip().split("\n\n")
    assert meaning == {**CODES, **COMPONENT_CODES}[code]
    assert not way_out.startswith(("```", "Comes with"))


@pytest.mark.parametrize("code", ENTRIES)
def test_the_example_gives_exactly_this_code_at_a_place(code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    entry = ENTRIES[code]
    shown = lay_out(entry)
    main(command(entry, monkeypatch))
    found = json.loads(capsys.readouterr().out)["specs"][0]["findings"]
    beside = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^Comes with .*$", entry, re.M))))
    assert {f["code"] for f in found} == {code} | beside
    for finding in (f for f in found if f["code"] == code):
        assert finding["file"] == "--set" or Path(finding["file"]).exists()
        assert finding["file"] != "spec.yaml" or finding["line"] <= max(1, shown.count("\n"))
        assert finding["line"] >= 1
        assert finding["column"] >= 1


def test_every_code_of_a_built_in_check_is_known():
    used = set()
    for file in (ROOT / "areal_plugins/builtin").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id == "Finding":
                used |= {n.value for n in ast.walk(call.args[0]) if isinstance(n, ast.Constant)} - {"alphabet"}
    assert used <= {*CODES, *COMPONENT_CODES}
    assert set(COMPONENT_CODES) <= used
