"""The walks of `docs/plugins.md`, typed as they stand there into a fresh environment."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/plugins.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)
PROGRAMS = {"pip": "pip", "pytest": "pytest", "areal-plugins": "areal_plugins"}


def walk(title: str) -> list[tuple[str, str, str]]:
    """The blocks under a heading: language, file, text."""
    section = PAGE.split(f"\n### {title}\n")[1].split("\n### ")[0].split("\n## ")[0]
    return BLOCK.findall(section)


@pytest.fixture(scope="module")
def environment(fresh):
    """Its programs are those of the shared packages, run by its own interpreter."""
    made = fresh()
    for program, module in PROGRAMS.items():
        script = made.python.with_name(program)
        fixtures = program == "pytest" and not entry_points(group="pytest11", name="areal")
        more = " -p areal_plugins.testing.pytest_plugin" if fixtures else ""
        script.write_text(f'#!/bin/sh\nexec "{made.python}" -P -m {module}{more} "$@"\n')
        script.chmod(0o755)
    return made


def edited(text: str, diff: str) -> str:
    """`text` with one hunk applied."""
    lines = diff.splitlines(keepends=True)
    old, new = ("".join(line[1:] for line in lines if line[0] in f" {sign}") for sign in "-+")
    assert text.count(old) == 1, f"the file does not hold once:\n{old}"
    return text.replace(old, new)


def follow(environment, folder: Path, blocks: list[tuple[str, str, str]]) -> str:
    """Do what each block says; what the commands printed."""
    shown = ""
    for language, file, text in blocks:
        if language == "sh":
            done = environment.shell(text, folder)
            assert done.returncode == 0, done.stdout + done.stderr
            shown += done.stdout
            (entered,) = re.findall(r"^cd (\S+)$", text, re.M) or ["."]
            folder /= entered
        else:
            path = folder / file
            assert path.is_file(), f"{file} was not generated"
            path.write_text(edited(path.read_text(), text) if language == "diff" else text)
    return shown


WALKS = [("A reward", "word-count", 4), ("An environment", "doubled", 2), ("An engine", "exact", 10)]


@pytest.mark.parametrize(("title", "component", "files"), WALKS)
def test_a_plugin_is_written_tested_installed_and_used(environment, tmp_path, title, component, files):
    blocks = walk(title)
    assert sum(bool(file) for _, file, _ in blocks) == files
    shown = follow(environment, tmp_path, blocks)
    assert " passed" in shown
    assert "done: " in shown
    assert (environment.packages / f"areal_plugin_{component.replace('-', '_')}").is_dir()
