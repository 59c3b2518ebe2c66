"""A file that only grows, on a disk that may be full for a while."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock

from areal_core.pipeline.manifest import sync

log = logging.getLogger(__name__)

LIMIT = 64 << 20
"""Bytes that may wait for room; a file with more of them raises what keeps it from being written."""


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a disk, a quota or a limit without room says."""


class Growing:
    """What is added is with the system at once, or waits, in order, until it can be. May be used by several threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        self._waiting = b""
        self._lock = Lock()
        self.add(b"")

    def add(self, data: bytes) -> None:
        """Raises `OSError` once too much waits, when `data` is not kept, or where it is not for want of room."""
        with self._lock:
            if len(self._waiting) > LIMIT:
                self._write()
            told = bool(self._waiting)
            self._waiting += data
            try:
                self._write()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                if not told:
                    log.warning("%s cannot be written for now: %s", self.path, error)

    def cut(self, end: Callable[[bytes], int]) -> int:
        """Keep the first `end(content)` bytes; how many. A kill meanwhile leaves all or that, and no room is needed."""
        with self._lock:
            written = self.path.read_bytes() if self.path.exists() else b""
            content = written + self._waiting
            kept = end(content)
            if kept < len(written):
                os.truncate(self.path, kept)
            self._waiting = content[len(written) : kept]
        return kept

    def sync(self) -> None:
        """Have on the disk what was added, and the file's name; raises `OSError` where that cannot be. Blocks."""
        with self._lock:
            self._write()
        sync(self.path)
        sync(self.path.parent)

    def close(self) -> None:
        """Write what still can be. More may be added later."""
        with self._lock:
            with suppress(OSError):
                self._write()
            if self._waiting:
                log.error("%s lacks its last %d bytes: they could not be written", self.path, len(self._waiting))
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self) -> None:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        while self._waiting:
            self._waiting = self._waiting[os.write(self._descriptor, self._waiting) :]
