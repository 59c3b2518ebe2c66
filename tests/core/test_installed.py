"""Installed distributions: what `importlib.metadata` says of this environment, and of ones made up."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from areal_core import installed


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in front of the path."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def add(place: Path, folder: str, *, headers: str = "", entries: str = "", file: str = "METADATA") -> None:
    (place / folder).mkdir(parents=True)
    (place / folder / file).write_text(headers, encoding="utf-8")
    if entries:
        (place / folder / "entry_points.txt").write_text(entries, encoding="utf-8")


@pytest.mark.parametrize("distribution", list(metadata.distributions()), ids=lambda distribution: distribution.name)
def test_a_distribution_has_the_version_that_its_whole_metadata_says(distribution):
    first = metadata.distribution(distribution.name)
    assert installed.version(distribution.name) == first.version


@pytest.mark.parametrize("group", sorted(metadata.entry_points().groups))
def test_a_group_has_the_entry_points_that_the_library_finds(group):
    found = {(e.name, e.value, normal(e.distribution.name)) for e in installed.entry_points(group)}
    assert found == {(e.name, e.value, normal(e.dist.name)) for e in metadata.entry_points(group=group) if e.dist}


@pytest.mark.parametrize("name", ["Some.Thing", "some_thing", "SOME--thing"])
def test_names_are_compared_as_pip_does(place, name):
    add(place, "some_thing-1.2.dist-info", headers="Name: Some.Thing\nVersion: 1.2\n\nVersion: 9 of the readme")
    assert installed.version(name) == "1.2"


def test_what_is_not_installed_has_no_version():
    assert installed.version("no-such-distribution") is None


def test_the_first_on_the_path_counts(place, monkeypatch):
    add(place / "a", "thing-1.dist-info", headers="Name: thing\nVersion: 1\n", entries="[g]\nx = one\n")
    add(place / "b", "thing-2.dist-info", headers="Name: thing\nVersion: 2\n", entries="[g]\ny = two\n")
    monkeypatch.setattr(sys, "path", [str(place / "a"), str(place / "b")])
    assert installed.version("thing") == "1"
    assert [entry.value for entry in installed.entry_points("g")] == ["one"]


def test_older_forms_of_metadata_are_read(place):
    add(place, "source.egg-info", headers="Metadata-Version: 1.0\nName: source\nVersion: 3.1\n", file="PKG-INFO")
    (place / "single-4.0-py3.11.egg-info").write_text("Name: single\nVersion: 4.0\n")
    assert installed.version("source") == "3.1"
    assert installed.version("single") == "4.0"


def test_a_folder_without_metadata_is_no_version(place):
    (place / "halfway-1.0.dist-info").mkdir()
    assert installed.version("halfway") is None


def test_what_pip_left_behind_is_not_installed(place):
    add(place, "~hing-1.dist-info", headers="Name: thing-left\nVersion: 1\n", entries="[left]\nx = one\n")
    assert list(installed.entry_points("left")) == []


def test_entry_points_load_what_they_name(place):
    entries = "; a comment\n[other]\nz = json\n[ g ]\n# another\na = json:decoder.JSONDecoder [extra]\nb=json\n"
    add(place, "thing-1.dist-info", headers="Name: thing\nVersion: 1\n", entries=entries)
    import json

    a, b = installed.entry_points("g")
    assert (a.name, b.name, a.distribution.name) == ("a", "b", "thing")
    assert a.load() is json.JSONDecoder
    assert b.load() is json


def test_a_directory_that_cannot_be_listed_is_passed_over(place, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(place / "missing"), *sys.path])
    assert installed.version("pluggy") == metadata.version("pluggy")
