"""A checkpoint is cut off at every point where the disk is touched."""

from __future__ import annotations

import builtins
import errno
import io
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from areal_core.errors import CheckpointError
from areal_core.pipeline.checkpoint import PipelineState, begin, finish, give_up, newest, read

IDENTITY = {"seed": 1}
LOST = (0, 1, 2)
"""Of the names that were given last and not synced, so many are lost as well."""


class Crash(BaseException):
    """Nothing runs after it."""


class Disk:
    """Counts what is done to the disk, and fails at the `at`-th time: for good with `Crash`, or once, being full.

    `lose` does what a loss of power may do: what was not synced is cut in half, the last names are the old ones.
    """

    def __init__(self, monkeypatch, at=None, error=None):
        self.done, self._at, self._error = 0, at, error
        self._dirty, self._renamed = {}, []
        for name in ("mkdir", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._touching(getattr(os, name)))
        self._rename, self._open = os.rename, io.open
        monkeypatch.setattr(os, "rename", self.rename)
        monkeypatch.setattr(os, "fsync", self.fsync)
        monkeypatch.setattr(io, "open", self.open)
        monkeypatch.setattr(builtins, "open", self.open)

    def touch(self):
        self.done += 1
        if self._error is None and self._at is not None and self.done >= self._at:
            raise Crash
        if self._error is not None and self.done == self._at:
            raise self._error

    def rename(self, source, target):
        self.touch()
        self._rename(source, target)
        self._renamed.append((Path(source), Path(target)))
        moved = {path: path for path in self._dirty if path.is_relative_to(source)}
        for path in moved:
            del self._dirty[path]
            self._dirty[Path(target) / path.relative_to(source)] = True

    def fsync(self, descriptor):
        self.touch()
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self._dirty.pop(path, None)
        self._renamed = [pair for pair in self._renamed if pair[1].parent != path]

    def open(self, file, mode="r", *args, **kwargs):
        if not set(mode) & set("wax+") or isinstance(file, int):
            return self._open(file, mode, *args, **kwargs)
        self.touch()
        self._dirty[Path(file)] = True
        return Written(self._open(file, mode, *args, **kwargs), self)

    def lose(self, names):
        for path in self._dirty:
            if path.exists():
                os.truncate(path, path.stat().st_size // 2)
        for source, target in reversed(self._renamed[len(self._renamed) - names :] if names else []):
            if target.exists():
                self._rename(target, source)

    def _touching(self, function):
        def touching(*args, **kwargs):
            self.touch()
            return function(*args, **kwargs)

        return touching


class Written:
    """A file whose writes the disk knows of."""

    def __init__(self, file, disk):
        self._file, self._disk = file, disk

    def write(self, data):
        try:
            self._disk.touch()
        except BaseException:
            self._file.write(data[: len(data) // 2])
            raise
        return self._file.write(data)

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self._file.close()

    def __getattr__(self, name):
        return getattr(self._file, name)


def save(folder, step, elapsed, keep=1):
    fresh = begin(folder, step)
    try:
        (fresh / "model.safetensors").write_bytes(b"weights" * 100)
        (fresh / "trainer" / "trainer.pt").write_bytes(bytes(range(256)))
        finish(fresh, PipelineState(step=step, elapsed=elapsed), IDENTITY, keep)
    except OSError:
        give_up(fresh)
        raise


def points(tmp_path, step):
    """How often a save touches the disk."""
    with pytest.MonkeyPatch.context() as patched:
        save(tmp_path / "count" / "checkpoints", 1, 1.0)
        disk = Disk(patched)
        save(tmp_path / "count" / "checkpoints", step, 2.0)
    return disk.done


@pytest.mark.parametrize("step", [1, 2], ids=["of the same step", "of a later step"])
def test_a_crash_at_any_point_leaves_a_whole_checkpoint_and_the_next_save_works(tmp_path, step):
    for at in range(1, points(tmp_path, step) + 1):
        for lost in LOST:
            run = tmp_path / f"{at}-{lost}"
            save(run / "checkpoints", 1, 1.0)
            with pytest.MonkeyPatch.context() as patched:
                disk = Disk(patched, at)
                with pytest.raises(Crash):
                    save(run / "checkpoints", step, 2.0)
            disk.lose(lost)
            found, damaged = newest(run)
            assert found is not None, f"a crash at point {at} leaves nothing"
            assert not damaged
            assert read(found, IDENTITY).elapsed in (1.0, 2.0)
            save(run / "checkpoints", 3, 3.0)
            assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-3"]


@pytest.mark.parametrize("step", [1, 2], ids=["of the same step", "of a later step"])
def test_a_disk_that_is_full_at_any_point_leaves_whole_checkpoints_alone(tmp_path, step):
    for at in range(1, points(tmp_path, step) + 1):
        run = tmp_path / str(at)
        save(run / "checkpoints", 1, 1.0)
        with pytest.MonkeyPatch.context() as patched:
            Disk(patched, at, OSError(errno.ENOSPC, "No space left on device"))
            try:
                save(run / "checkpoints", step, 2.0)
            except OSError:
                expected = {1.0, 2.0}
            else:
                expected = {2.0}
        found, damaged = newest(run)
        assert found is not None
        assert read(found, IDENTITY).elapsed in expected
        assert not damaged
        assert not list((run / "checkpoints").glob("*.new"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    run = tmp_path_factory.mktemp("run")
    for step in (1, 2):
        save(run / "checkpoints", step, float(step), keep=2)
    return run


FILES = ("model.safetensors", "trainer/trainer.pt", "pipeline.json", "buffer.npz", "manifest.json")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.none() | st.integers(0, 7))
def test_a_bit_that_flips_or_a_file_that_is_cut_anywhere_is_found(run, name, place, bit):
    path = run / "checkpoints" / "step-2" / name
    content = path.read_bytes()
    at = int(place * len(content))
    path.write_bytes(content[:at] if bit is None else flipped(content, at, bit))
    try:
        found, damaged = newest(run)
        if found is not None and found.name == "step-2":
            assert name == "manifest.json"  # and what it says is still right
            assert read(found, IDENTITY).elapsed == 2.0
        else:
            assert found is not None
            assert found.name == "step-1"
            assert str(run / "checkpoints" / "step-2") in damaged[0].path
            assert name == "manifest.json" or damaged[0].path.endswith(name)
    finally:
        path.write_bytes(content)


def flipped(content, at, bit):
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


def test_a_manifest_that_is_no_manifest_is_named(run):
    path = run / "checkpoints" / "step-2" / "manifest.json"
    content = path.read_bytes()
    for nonsense in (b"", b"[]", b"{}", b'{"files": {"a": 1}}', b'{"files": {"a": {}}}', b"\xff"):
        path.write_bytes(nonsense)
        _, (problem,) = newest(run)
        assert isinstance(problem, CheckpointError)
        assert problem.path == str(path)
    path.write_bytes(content)
