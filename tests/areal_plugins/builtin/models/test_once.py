from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest

from areal_plugins.builtin.models.once import made_once


def write(directory: Path) -> None:
    (directory / "file").write_text("whole")


def test_made_once_writes_the_directory(tmp_path: Path) -> None:
    assert (made_once(tmp_path / "cache" / "model", write) / "file").read_text() == "whole"


def test_a_directory_that_exists_is_not_written_again(tmp_path: Path) -> None:
    def refuse(directory: Path) -> None:
        raise AssertionError("written twice")

    made_once(tmp_path / "model", write)
    assert made_once(tmp_path / "model", refuse) == tmp_path / "model"


def test_a_writer_that_raises_leaves_neither_target_nor_partial(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        write(directory)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        made_once(tmp_path / "model", fail)
    assert [path.name for path in tmp_path.iterdir()] == [".model.lock"]


def test_what_a_dead_writer_left_is_not_part_of_the_result(tmp_path: Path) -> None:
    (tmp_path / ".model.partial").mkdir()
    (tmp_path / ".model.partial" / "half").touch()
    assert [path.name for path in made_once(tmp_path / "model", write).iterdir()] == ["file"]


def _make_and_count(target: Path, log: Path, barrier: multiprocessing.synchronize.Barrier) -> None:
    def counted(directory: Path) -> None:
        with log.open("a") as stream:
            stream.write(f"{os.getpid()}\n")
        write(directory)

    barrier.wait()
    assert (made_once(target, counted) / "file").read_text() == "whole"


def test_processes_that_come_together_write_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    arguments = (tmp_path / "model", tmp_path / "log", barrier)
    processes = [context.Process(target=_make_and_count, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len((tmp_path / "log").read_text().splitlines()) == 1
