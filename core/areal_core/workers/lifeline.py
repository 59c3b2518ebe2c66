"""No worker outlives its controller, however that one ends and whatever hangs here."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

ORPHAN_GRACE = 5.0
"""Seconds that cleaning up may take once the controller is gone."""

log = logging.getLogger(__name__)


class Lifeline:
    """Standard input, which must be a pipe that only the controller's process holds open; made before all else.

    When it ends, `over` is set. A thread watches it, so that a worker whose loop hangs ends too. The
    last worker to end removes the controller's socket `door` and its folder.
    """

    def __init__(self, over: asyncio.Event, door: Path | None) -> None:
        self._over, self._loop = over, asyncio.get_running_loop()
        self._door = door
        self._broken = False
        atexit.register(self._sweep)  # the first to be registered runs last
        threading.Thread(target=self._watch, name="lifeline", daemon=True).start()

    def _watch(self) -> None:
        while os.read(0, 1):
            pass
        log.warning("the controller is gone")
        self._broken = True
        deadline(ORPHAN_GRACE)
        with suppress(RuntimeError):  # the loop has ended by itself meanwhile
            self._loop.call_soon_threadsafe(self._over.set)

    def _sweep(self) -> None:
        if not self._broken:
            return
        if self._door is not None:
            self._door.unlink(missing_ok=True)
            with suppress(OSError):  # other workers still have their sockets there
                self._door.parent.rmdir()
        _kill_group()


def deadline(seconds: float) -> None:
    """End this process after so long, with all that it has started."""
    timer = threading.Timer(seconds, _give_up, (seconds,))
    timer.daemon = True
    timer.start()


def _give_up(seconds: float) -> None:
    log.error("ending took longer than %g s", seconds)
    _kill_group()
    os._exit(1)


def _kill_group() -> None:
    """End what this process has started and not ended, and itself; only where it leads its group."""
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
