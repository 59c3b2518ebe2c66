"""The disk as a run sees it: it can be full, and a process can end between any two changes on it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

_CHANGES = ("os.rename", "os.truncate", "os.remove", "os.rmdir", "os.mkdir")

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

ROOM = 100
"""Bytes that a disk that gets full still takes."""

_write = os.write

_current: list[Disk] = []


class Disk:
    """Told of every change below `folder` before it is made; `change` may raise, and it is not made."""

    def __init__(self, folder: Path, change: Callable[[str, Path, Path | None], None]) -> None:
        self._prefix, self._change = str(folder), change
        self.full = False
        self._room = 0

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """In use while the block runs."""
        _listen()
        _current.append(self)
        try:
            with patch.object(os, "write", self._written):
                yield self
        finally:
            _current.remove(self)

    def fill(self) -> None:
        """Nothing new can be made, and hardly anything written: a line may be cut in two."""
        self.full, self._room = True, ROOM

    def drain(self) -> None:
        """There is room again."""
        self.full = False

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """An audit event of the interpreter."""
        if event == "open":
            if not _writes(args):
                return
        elif event not in _CHANGES:
            return
        path = args[0]
        if not isinstance(path, str) or not path.startswith(self._prefix):
            return
        if self.full and (event == "os.mkdir" or (event == "open" and not _goes_on(args))):
            raise _no_space(path)
        _current.remove(self)  # what looks closer reads and writes itself
        try:
            self._change(event, Path(path), Path(args[1]) if event == "os.rename" else None)
        finally:
            _current.append(self)

    def _written(self, descriptor: int, data: bytes) -> int:
        """Stands in for `os.write`, of which no audit event tells."""
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink()) if self.full else ""
        if not path.startswith(self._prefix):
            return _write(descriptor, data)
        if not self._room:
            raise _no_space(path)
        written = _write(descriptor, data[: self._room])
        self._room -= written
        return written


def _no_space(path: str) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device (injected)", path)


def _goes_on(args: tuple[Any, ...]) -> bool:
    """Whether a file that is there is opened to write to its end, which takes no room yet."""
    path, mode, flags = args
    appends = mode[:1] == "a" if isinstance(mode, str) else not flags & os.O_TRUNC
    return appends and Path(path).exists()


def _writes(args: tuple[Any, ...]) -> bool:
    _, mode, flags = args
    if isinstance(mode, str):
        return mode[:1] in "wax" or "+" in mode
    return bool(flags & _WRITES)


def _listen() -> None:
    """Hear of every file that is opened, renamed or removed; an audit hook stays for the process's life."""
    if not getattr(_listen, "done", False):
        sys.addaudithook(_hear)
        _listen.done = True  # type: ignore[attr-defined]


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if _current and (event == "open" or event in _CHANGES):
        _current[-1].heard(event, args)
