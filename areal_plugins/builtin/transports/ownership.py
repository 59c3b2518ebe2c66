"""Directories in shared memory that do not outlive their process.

The owner holds a lock on its directory as long as it lives, however it ends. Whoever comes next
removes directories that nobody holds. A directory is locked before it gets the name that others look
for, so that it is never taken for an abandoned one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

_PREFIX = "areal-weights-"


class OwnedDirectory:
    """A new directory in `root`, `areal-weights-<run>-<process>-<random>`, that this process owns."""

    def __init__(self, root: Path, work: Path) -> None:
        hidden = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}{run_key(work)}-{os.getpid()}-", dir=root))
        lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.path = hidden.rename(root / hidden.name.removeprefix("."))
        self._owned = ExitStack()
        self._owned.callback(os.close, lock)
        self._owned.callback(shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove it with all that is in it; once it is gone, nothing more."""
        self._owned.close()


def run_key(work: Path) -> str:
    """The run by a short name: the same for whoever works below the same directory."""
    return hashlib.sha256(str(work.absolute()).encode()).hexdigest()[:12]


def sweep(root: Path) -> list[Path]:
    """Remove the directories in `root` whose owners have ended; those removed."""
    return [path for path in sorted(root.glob(f"{_PREFIX}*")) if path.is_dir() and _remove_if_abandoned(path)]


def _remove_if_abandoned(path: Path) -> bool:
    try:
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, PermissionError):  # gone meanwhile, or another user's
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True
