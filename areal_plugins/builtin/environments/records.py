"""JSON Lines files, one record at a time: only where lines begin is kept in memory."""

from __future__ import annotations

import errno
import os
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec
from attrs import frozen

from areal_core.data import Message
from areal_plugins import InputError

_BOM = b"\xef\xbb\xbf"


@frozen
class Record:
    """One line's object; `where` is `file:line`, for errors."""

    where: str
    values: dict[str, Any]

    def text(self, name: str) -> str:
        """The field as text; numbers as they are written."""
        value = self._value(name)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.wrong(f"{name!r} must be a text or a number, not {_shown(value)}")
        return value if isinstance(value, str) else msgspec.json.encode(value).decode()

    def text_or_messages(self, name: str) -> str | tuple[Message, ...]:
        """The field as text, or as the messages of a conversation."""
        value = self._value(name)
        if not isinstance(value, list):
            return self.text(name)
        try:
            return msgspec.convert(value, tuple[Message, ...])
        except msgspec.ValidationError as error:
            self.wrong(f"{name!r} must be a text, or messages with role and content: {error}")

    def wrong(self, problem: str, way_out: str = "") -> NoReturn:
        """Raise `InputError` that names this line."""
        raise InputError(self.where, problem, way_out)

    def _value(self, name: str) -> Any:
        if name not in self.values:
            self.wrong(f"the record has no field {name!r}", f"it has {', '.join(map(repr, self.values)) or 'none'}")
        return self.values[name]


class RecordFile:
    """The records of a file by number, from 0; blank lines do not count.

    Opening it reads it through once, without keeping it.

    Raises:
        InputError: there is no such file, or it has no records.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._starts = array("q")
        self._blanks = array("q")  # for each blank line, the number of records before it
        self._fd = _open(path)
        weakref.finalize(self, os.close, self._fd)
        with open(self._fd, "rb", closefd=False) as file:
            self._index(file)
        if not len(self):
            raise InputError(str(path), "holds no records", "it must have one JSON object a line")

    @property
    def size_bytes(self) -> int:
        return self._starts[-1]

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> Record:
        """The record; raises `InputError` where the line is no JSON object in UTF-8."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.path} has {len(self)} records, none of them is number {index}")
        start, end = self._starts[index], self._starts[index + 1]
        where = f"{self.path}:{index + 1 + bisect_right(self._blanks, index)}"
        return Record(where, _object(os.pread(self._fd, end - start, start), where))

    def __iter__(self) -> Iterator[Record]:
        return (self[index] for index in range(len(self)))

    def _index(self, file: BinaryIO) -> None:
        position = 0
        for line in file:
            if line.strip():
                self._starts.append(position)
            else:
                self._blanks.append(len(self._starts))
            position += len(line)
        self._starts.append(position)


def _open(path: Path) -> int:
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(line.removeprefix(_BOM).decode())
    except UnicodeDecodeError as error:
        raise InputError(where, f"is not UTF-8: {error.reason}") from None
    except msgspec.DecodeError as error:
        raise InputError(where, f"is not JSON: {error}") from None
    except RecursionError:
        raise InputError(where, "is nested too deep") from None
    if not isinstance(values, dict):
        raise InputError(where, f"must be a JSON object, not {_shown(values)}")
    return values


def _shown(value: Any) -> str:
    """`value` as the file has it, cut short."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 40 else f"{text[:40]}..."
