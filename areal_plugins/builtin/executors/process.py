"""One child process, however it was started, with all that it starts itself."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Protocol

from areal_core.errors import InputError
from areal_plugins.builtin.executors import reaper

SWEEP_GRACE = 2.0
"""Seconds that what a dead process has left running gets to end by itself."""

_TAIL_BYTES = 1 << 14
_TAIL_LINES = 20


class Child(Protocol):
    """A process that leads a group of its own.

    Its standard input is a pipe that nothing is written to: its end tells the child that this process is gone.
    """

    pid: int

    def signal(self, number: int) -> None:
        """Send it a signal, if it is still there."""
        ...

    def wait(self) -> int | None:
        """Return once it has ended and what it left behind was asked to end; its exit code, None: nobody knows."""
        ...


class Log:
    """A file that a process appends what it says to."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._start = path.stat().st_size if path.exists() else 0

    def open(self) -> IO[bytes]:
        """For the process to write to."""
        return self._path.open("ab")

    def tail(self) -> str:
        """The last lines that were written since."""
        with self._path.open("rb") as output:
            size = output.seek(0, os.SEEK_END)
            output.seek(max(self._start, size - _TAIL_BYTES))
            lines = output.read().decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])


class Process:
    """A child as the loop sees it, with all that it starts itself, which ends with it."""

    def __init__(self, child: Child, log: Log) -> None:
        self._loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[str] = self._loop.create_future()
        self.swept: asyncio.Future[None] = self._loop.create_future()
        self._child, self.tail = child, log.tail
        self.pid: int | None = child.pid
        threading.Thread(target=self._watch, name=f"process {child.pid}", daemon=True).start()

    def terminate(self) -> None:
        """Ask it to end."""
        self._child.signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        self._child.signal(signal.SIGKILL)

    def _watch(self) -> None:
        """In a thread: wait for its end, and end what it leaves behind."""
        code = self._child.wait()
        self._tell(self.exited, describe(code))
        _sweep(self._child.pid)
        self._tell(self.swept, None)

    def _tell(self, future: asyncio.Future[Any], value: object) -> None:
        with suppress(RuntimeError):  # nobody is left to be told once the loop is closed
            self._loop.call_soon_threadsafe(future.set_result, value)


class Spawned:
    """A `Child` with a fresh interpreter."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Log) -> None:
        with log.open() as output:
            self._popen = _spawn(command, environment, output)
        self.pid = self._popen.pid

    def signal(self, number: int) -> None:
        """As `Child` says."""
        self._popen.send_signal(number)

    def wait(self) -> int:
        """As `Child` says."""
        _await_exit(self.pid)
        signal_group(self.pid, signal.SIGTERM)
        code = self._popen.wait()
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        return code


class Leader(Protocol):
    """What leads a process group of its own."""

    @property
    def pid(self) -> int | None:
        """Its process number."""
        ...


class Reaper:
    """Kills the processes that outlive this one, however it ends; only where the system has handles of processes."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        """Removed with the last of them."""
        self._popen: subprocess.Popen[bytes] | None = None

    def watch(self, process: Leader) -> None:
        """Look after it, and after all that it starts."""
        if not hasattr(os, "pidfd_open"):
            return
        if self._popen is None or self._popen.poll() is not None:
            self._popen = _start_reaper(self.folder)
        assert self._popen.stdin is not None
        with suppress(BrokenPipeError):  # somebody has just killed it; the next child gets another one
            self._popen.stdin.write(f"{process.pid}\n".encode())

    def close(self) -> None:
        """Look after nobody any more."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.communicate()
            self._popen = None


def spawn(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Process:
    """A process with a fresh interpreter, or whatever else `command` starts."""
    to = Log(log)
    return Process(Spawned(command, environment, to), to)


def describe(code: int | None) -> str:
    """How a process ended: `exit code 3`, or `killed by SIGKILL`."""
    if code is None:
        return "ended; only the process that it was forked from knows with which exit code, and that does not answer"
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


def _start_reaper(folder: Path | None) -> subprocess.Popen[bytes]:
    """It needs nothing that is installed, and so starts in a hundredth of a second."""
    command = [sys.executable, "-I", "-S", reaper.__file__, *([str(folder)] if folder else ())]
    return subprocess.Popen(  # noqa: S603 - fixed words
        command,
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _await_exit(pid: int) -> None:
    """Return once it has ended but still holds its number, so that a signal to its group cannot hit another."""
    if hasattr(os, "waitid"):
        with suppress(ChildProcessError):  # another thread sent it a signal and found that it had ended
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _sweep(group: int) -> None:
    """Return once the group is empty; make it so after `SWEEP_GRACE`."""
    give_up = time.monotonic() + SWEEP_GRACE
    while signal_group(group, 0):
        if time.monotonic() > give_up:
            signal_group(group, signal.SIGKILL)
            return
        time.sleep(0.02)


def signal_group(group: int, number: int) -> bool:
    """Send everyone in a process group a signal; whether there was anyone."""
    if not hasattr(os, "killpg"):
        return False
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
