"""Which records are trained on and which are held out."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec
from attrs import frozen

from areal_core.data import Message, Task
from areal_plugins import InputError
from areal_plugins.builtin.environments.records import Record, RecordFile

_EAGER_BYTES = 64 << 20

Question = str | tuple[Message, ...]


@frozen
class Reading:
    """How records are read: what is asked, and the whole task."""

    question: Callable[[Record], Question]
    task: Callable[[Record], Task]


@frozen
class _Part:
    file: RecordFile
    numbers: Sequence[int]


class Dataset:
    """Tasks from records. `test_path` holds tasks out in a file of their own, `test_fraction` a part of `path`.

    With `test_fraction` a task is held out when a hash of its question says so: the same tasks for
    every seed and prompt style, and a question that occurs twice is never in both splits. All records
    are read once then; otherwise those of files up to 64 MiB, so that what is wrong with them is
    known before training begins, and of longer files the first.
    """

    def __init__(self, path: str, test_path: str | None, test_fraction: float, reading: Reading) -> None:
        self._reading = reading
        train = RecordFile(Path(path))
        if test_fraction:
            self._splits = self._divided(train, test_fraction)
        else:
            self._splits = {"train": self._whole(train)}
        if test_path is not None:
            self._splits["test"] = self._whole(RecordFile(Path(test_path)))

    def size(self, split: str) -> int:
        """How many tasks; 0 when there is no such split."""
        return len(self._splits[split].numbers) if split in self._splits else 0

    def task(self, split: str, index: int) -> Task:
        """The `index`-th task of the split, in the order of the file."""
        if not 0 <= index < self.size(split):
            raise IndexError(f"split {split!r} has {self.size(split)} tasks, none of them is number {index}")
        part = self._splits[split]
        return self._reading.task(part.file[part.numbers[index]])

    def _whole(self, file: RecordFile) -> _Part:
        for record in file if file.size_bytes <= _EAGER_BYTES else (file[0],):
            self._reading.task(record)
        return _Part(file, range(len(file)))

    def _divided(self, file: RecordFile, fraction: float) -> dict[str, _Part]:
        numbers = {"train": array("q"), "test": array("q")}
        for number, record in enumerate(file):
            self._reading.task(record)
            held_out = position(self._reading.question(record)) < fraction
            numbers["test" if held_out else "train"].append(number)
        for split, chosen in numbers.items():
            if not chosen:
                problem = f"test_fraction {fraction:g} of {len(file)} records leaves none for the split {split!r}"
                raise InputError(str(file.path), problem, "change test_fraction, or give a test_path")
        return {split: _Part(file, chosen) for split, chosen in numbers.items()}


def position(question: Question) -> float:
    """A place in [0, 1) that depends on the question alone, spread evenly."""
    digest = blake2b(msgspec.json.encode(question), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64
