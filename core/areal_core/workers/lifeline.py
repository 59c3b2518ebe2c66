"""No worker outlives its controller, however that one ends and whatever hangs here."""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

ORPHAN_GRACE = 5.0
"""Seconds that cleaning up may take once the controller is gone."""

LAST_LOOK = 0.2
"""Seconds to wait at the exit for the lifeline's end: the link's may have come just before it."""

_PR_SET_PDEATHSIG = 1

log = logging.getLogger(__name__)


class Lifeline:
    """Standard input, which must be a pipe that only the controller's process holds open; made before all else.

    When it ends, `over` is set. A thread watches it, so that a worker whose loop hangs ends too. Then
    `sockets`, the worker's own and the controller's, are removed, and by the last worker their folder.
    """

    def __init__(self, over: asyncio.Event, sockets: Sequence[Path]) -> None:
        self._over, self._loop = over, asyncio.get_running_loop()
        self._sockets = sockets
        self._broken = False
        wake_as_orphan()
        atexit.register(self._sweep)  # the first to be registered runs last
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def _watch(self) -> None:
        while os.read(0, 1):
            pass
        log.warning("the controller is gone")
        self._broken = True
        deadline(ORPHAN_GRACE, self._sweep)
        with suppress(RuntimeError):  # the loop has ended by itself meanwhile
            self._loop.call_soon_threadsafe(self._over.set)

    def _sweep(self) -> None:
        if not self._broken and not select.select([0], [], [], LAST_LOOK)[0]:
            return
        for socket in self._sockets:
            socket.unlink(missing_ok=True)
            with suppress(OSError):  # other workers still have their sockets there
                socket.parent.rmdir()
        _kill_group()


def wake_as_orphan() -> None:
    """Have this process continued when its parent ends: while it is stopped it sees nobody's end, and would stay."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)


def deadline(seconds: float, last: Callable[[], None] | None = None) -> None:
    """End this process after so long, with all that it has started; before that, do `last`."""

    def give_up() -> None:
        log.error("ending took longer than %g s", seconds)
        if last is not None:
            last()
        _kill_group()
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


def _kill_group() -> None:
    """End what this process has started and not ended, and itself; only where it leads its group."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
