"""One child process, with all that it starts itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from areal_core.errors import InputError

SWEEP_GRACE = 2.0
"""Seconds that what a dead process has left running gets to end by itself."""

_TAIL_BYTES = 1 << 14
_TAIL_LINES = 20


class Process:
    """Leads a group of its own, which ends with it. Its output is appended to `log`.

    Its standard input is a pipe that nothing is written to: its end tells the child that this process is gone.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[str] = self._loop.create_future()
        self.swept: asyncio.Future[None] = self._loop.create_future()
        self._log = log
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._child = _spawn(command, environment, output)
        self.pid: int | None = self._child.pid
        threading.Thread(target=self._watch, name=f"process {self._child.pid}", daemon=True).start()

    def terminate(self) -> None:
        """Ask it to end."""
        self._child.terminate()

    def kill(self) -> None:
        """End it now."""
        self._child.kill()

    def tail(self) -> str:
        """The last lines that it wrote."""
        with self._log.open("rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(self._log_start, size - _TAIL_BYTES))
            lines = output.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def _watch(self) -> None:
        """In a thread: wait for its end, and end what it leaves behind."""
        _await_exit(self._child.pid)
        _signal_group(self._child.pid, signal.SIGTERM)
        code = self._child.wait()
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._tell(self.exited, describe(code))
        _sweep(self._child.pid)
        self._tell(self.swept, None)

    def _tell(self, future: asyncio.Future[Any], value: object) -> None:
        with suppress(RuntimeError):  # nobody is left to be told once the loop is closed
            self._loop.call_soon_threadsafe(future.set_result, value)


def describe(code: int) -> str:
    """How a process ended: `exit code 3`, or `killed by SIGKILL`."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def _spawn(command: Sequence[str], environment: Mapping[str, str], output: Any) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - the executor makes the command
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise InputError(command[0], f"cannot be started: {error.strerror}", "see `python:` in the spec") from error


def _await_exit(pid: int) -> None:
    """Return once it has ended but still holds its number, so that a signal to its group cannot hit another."""
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):  # another thread sent it a signal and found that it had ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _sweep(group: int) -> None:
    """Return once the group is empty; make it so after `SWEEP_GRACE`."""
    give_up = time.monotonic() + SWEEP_GRACE
    while _signal_group(group, 0):
        if time.monotonic() > give_up:
            _signal_group(group, signal.SIGKILL)
            return
        time.sleep(0.02)


def _signal_group(group: int, number: int) -> bool:
    """Whether there was anyone to signal."""
    if not hasattr(os, "killpg"):
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
