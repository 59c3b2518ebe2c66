"""Directories that go with their owner, or when the next one comes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from areal_plugins.builtin.ownership import OwnedDirectory, sweep, temporary

OWNER = """
import sys, time
from pathlib import Path
from areal_plugins.builtin.ownership import OwnedDirectory

owned = OwnedDirectory(Path(sys.argv[1]), "mine-")
(owned.path / "file").touch()
print(owned.path, flush=True)
time.sleep(1000)
"""


def test_what_a_killed_process_leaves_is_swept_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    living = OwnedDirectory(tmp_path, "mine-")
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    with owner:
        left = Path(owner.stdout.readline().strip())
        assert sweep(tmp_path, "mine-") == []
        owner.kill()
    assert sweep(tmp_path, "mine-") == [left]
    assert not left.exists()
    assert living.path.exists()
    living.remove()
    assert not living.path.exists()


def test_nobody_else_may_look_into_it(tmp_path: Path) -> None:
    assert OwnedDirectory(tmp_path, "mine-").path.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(("age", "swept"), [(0, False), (3600, True)])
def test_one_that_never_got_its_name_is_swept_later(tmp_path: Path, age: float, swept: bool) -> None:
    unnamed = tmp_path / ".mine-x"
    unnamed.mkdir()
    made = unnamed.stat().st_mtime - age
    os.utime(unnamed, (made, made))
    sweep(tmp_path, "mine-")
    assert unnamed.exists() is not swept


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "yours-x").mkdir()
    assert sweep(tmp_path, "mine-") == []


def test_a_temporary_directory_goes_and_so_do_those_whose_process_was_killed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    living = OwnedDirectory(tmp_path, "mine-")
    (tmp_path / "mine-left").mkdir()
    with temporary("mine-") as folder:
        assert set(tmp_path.iterdir()) == {living.path, folder}
    assert list(tmp_path.iterdir()) == [living.path]
    living.remove()
