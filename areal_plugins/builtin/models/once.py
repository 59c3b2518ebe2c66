"""Directories that are made once and then found again, by whichever process comes first."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def made_once(target: Path, write: Callable[[Path], None]) -> Path:
    """`target`, filled by `write(directory)` unless it exists; it appears whole or not at all.

    Processes that want the same target at the same time wait for the first one. `target`'s name
    must say all that its content depends on.
    """
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(f".{target.name}.lock")):
            if not target.is_dir():
                _write_aside(target, write)
    return target


def _write_aside(target: Path, write: Callable[[Path], None]) -> None:
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that died here; the lock is ours now
    partial.mkdir()
    try:
        write(partial)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold `path` locked; the kernel frees the lock when the process ends, however it ends."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
