from __future__ import annotations

import errno
import fcntl

import pytest

from areal_core.errors import InputError
from areal_core.pipeline.claim import claimed


def test_a_run_directory_has_one_owner_at_a_time(tmp_path):
    run = tmp_path / "run"
    with claimed(run), pytest.raises(InputError, match="run: a run is going on in this directory"), claimed(run):
        pass
    with claimed(run):  # it is free again
        pass


def test_a_file_system_without_locks_is_told_of(tmp_path, monkeypatch, caplog):
    def refuse(descriptor, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with claimed(tmp_path / "run"):
        assert "its file system has no locks (No locks available)" in caplog.text
