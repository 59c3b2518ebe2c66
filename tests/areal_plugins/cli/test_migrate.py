"""`areal-plugins migrate`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from areal_plugins.cli import main
from areal_plugins.cli import migrate as command
from areal_plugins.migrate import Migration, RenameKey

OLD = "apiVersion: areal/v0\nlabel: x  # kept\n"
NEW = "apiVersion: areal/v1\nname: x   # kept\n"  # in its column


@pytest.fixture(autouse=True)
def _older_version(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "MIGRATIONS", (Migration("areal/v0", "areal/v1", (RenameKey("label", "name"),)),))
    (tmp_path / "spec.yaml").write_text(OLD)


def test_the_new_spec_goes_to_standard_output_and_the_changes_to_standard_error(capsys, tmp_path):
    assert main(["migrate", "spec.yaml"]) == 0
    shown = capsys.readouterr()
    assert shown.out == NEW
    assert shown.err == "spec.yaml:2: label is now called name\nspec.yaml: areal/v0 -> areal/v1\n"
    assert (tmp_path / "spec.yaml").read_text() == OLD


def test_write_rewrites_the_file_in_place(tmp_path, capsys):
    (tmp_path / "spec.yaml").chmod(0o640)
    assert main(["migrate", "spec.yaml", "--write"]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "spec.yaml").read_text() == NEW
    assert (tmp_path / "spec.yaml").stat().st_mode & 0o777 == 0o640
    assert [file.name for file in tmp_path.iterdir()] == ["spec.yaml"]


def test_another_file_can_be_named(tmp_path):
    assert main(["migrate", "spec.yaml", "-o", "new.yaml"]) == 0
    assert (tmp_path / "new.yaml").read_text() == NEW


def test_check_writes_nothing_and_says_whether_there_is_something_to_do(tmp_path, capsys):
    assert main(["migrate", "spec.yaml", "--check"]) == 2
    assert capsys.readouterr().out == ""
    (tmp_path / "spec.yaml").write_text(NEW)
    assert main(["migrate", "spec.yaml", "--check"]) == 0


def test_a_version_of_the_future_is_a_located_error(tmp_path, capsys):
    (tmp_path / "spec.yaml").write_text("apiVersion: areal/v9\n")
    assert main(["migrate", "spec.yaml"]) == 2
    assert "spec.yaml:1:13: error[unknown-version]" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_an_error(capsys):
    assert main(["migrate", "spec.yaml", "-o", "missing/new.yaml"]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_a_device_is_written_to_and_not_replaced():
    assert main(["migrate", "spec.yaml", "-o", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


def test_a_link_that_lies_beside_the_file_is_not_followed(tmp_path):
    (tmp_path / f".new.yaml.{os.getpid()}").symlink_to("elsewhere")
    assert main(["migrate", "spec.yaml", "-o", "new.yaml"]) == 0
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    assert main(["migrate", "spec.yaml", "-o", "folder"]) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["folder", "spec.yaml"]
