"""The disk as a run sees it: it can be full, and a process can end between any two changes on it."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir")

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

_current: list[Disk] = []


class Disk:
    """Told of every change below `folder` before it is made; `change` may raise, and it is not made."""

    def __init__(self, folder: Path, change: Callable[[str, Path, Path | None], None]) -> None:
        self._prefix, self._change = str(folder), change
        self.full = False

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """In use while the block runs."""
        _listen()
        _current.append(self)
        try:
            yield self
        finally:
            _current.remove(self)

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
        if self.full and "/checkpoints/" in path and event in ("open", "os.mkdir"):
            raise OSError(errno.ENOSPC, "No space left on device (injected)", path)
        _current.remove(self)  # what looks closer reads and writes itself
        try:
            self._change(event, Path(path), Path(args[1]) if event == "os.rename" else None)
        finally:
            _current.append(self)


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
