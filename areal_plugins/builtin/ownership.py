"""Directories in shared memory or among temporary files that do not outlive their process for long.

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
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

_MOMENT = 60.0
"""Seconds that a directory may be without a lock at first; it takes a thousandth of one."""


class OwnedDirectory:
    """A new directory in `root`, `<prefix><random>`, that this process owns; nobody else may look into it."""

    def __init__(self, root: Path, prefix: str) -> None:
        hidden = Path(tempfile.mkdtemp(prefix=f".{prefix}", dir=root))
        lock = os.open(hidden, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.path = hidden.rename(root / hidden.name.removeprefix("."))
        self._owned = ExitStack()
        self._owned.callback(os.close, lock)
        self._owned.callback(shutil.rmtree, self.path, ignore_errors=True)

    def remove(self) -> None:
        """Remove it with all that is in it; once it is gone, nothing more."""
        self._owned.close()


@contextmanager
def temporary(prefix: str) -> Iterator[Path]:
    """A directory among temporary files while it is needed; what processes that were killed left there goes first."""
    root = Path(tempfile.gettempdir())
    sweep(root, prefix)
    owned = OwnedDirectory(root, prefix)
    try:
        yield owned.path
    finally:
        owned.remove()


def run_key(work: Path) -> str:
    """The run by a short name: the same for whoever works below the same directory."""
    return hashlib.sha256(str(work.absolute()).encode()).hexdigest()[:12]


def sweep(root: Path, prefix: str) -> list[Path]:
    """Remove the directories `<prefix>...` in `root` whose owners have ended; those removed."""
    found = [*root.glob(f"{prefix}*"), *_unnamed(root, prefix)]
    return [path for path in sorted(found) if path.is_dir() and _remove_if_abandoned(path)]


def _unnamed(root: Path, prefix: str) -> Iterator[Path]:
    """Those whose owner was killed before it gave them their name."""
    for path in root.glob(f".{prefix}*"):
        try:
            if time.time() - path.stat().st_mtime > _MOMENT:
                yield path
        except FileNotFoundError:  # it has its name by now
            continue


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
