"""A run directory belongs to one process at a time."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from areal_core.errors import InputError

_FILE = "work/lock"

log = logging.getLogger(__name__)


@contextmanager
def claimed(run: Path) -> Iterator[None]:
    """The directory `run`, which is made if need be, is this process's own, until the block or the process ends.

    Raises:
        InputError: another run is going on there, or the directory cannot be made.

    """
    file = run / _FILE
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        problem = f"cannot hold a run: {error.strerror}"
        raise InputError(str(run), problem, "choose another one by --run-dir") from error
    try:
        _lock(run, lock)
        yield
    finally:
        os.close(lock)  # and with it the claim


def _lock(run: Path, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        problem = "a run is going on in this directory"
        raise InputError(str(run), problem, "wait for its end or stop it, or choose another directory") from None
    except OSError as error:
        log.warning("%s: its file system has no locks (%s); a second run is not refused here", run, error.strerror)
