"""The controller's end of the process that workers are forked from (see `nursery`)."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress

from areal_plugins.builtin.executors.nursery import NUMBER, Order, Syllabus, receive, send, take
from areal_plugins.builtin.executors.process import Log, signal_group

FORK_SECONDS = 10.0
"""What a fork may take; it takes a hundredth of a second."""

AVAILABLE = sys.platform == "linux"
"""Elsewhere libraries of the system keep threads of their own, or processes have no handles."""


class Unready(Exception):
    """No worker can be forked; says why."""


class Preloaded:
    """A process that has imported `syllabus` and forks workers. Calls block; `fork` may be called in any thread."""

    def __init__(self, syllabus: Syllabus, environment: Mapping[str, str], log: Log) -> None:
        self._control, theirs = socket.socketpair()
        number = theirs.fileno()
        with theirs, log.open() as output:
            self._process = subprocess.Popen(  # noqa: S603 - fixed words
                [sys.executable, "-P", "-m", "areal_plugins.builtin.executors.nursery", str(number)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[number],
            )
        self._syllabus = syllabus

    def prepare(self, seconds: float) -> None:
        """Return once it can fork; raises `Unready` where it cannot, or takes longer than that."""
        self._control.settimeout(seconds)
        try:
            send(self._control, self._syllabus)
            problem = receive(self._control, str)
        except (EOFError, OSError) as error:
            raise Unready(f"the process to fork workers from did not get ready: {error!r}; see its log") from error
        if problem:
            raise Unready(problem)

    def fork(self, order: Order, log: Log) -> Forked:
        """A worker; raises `Unready` where none comes."""
        reading, writing = os.pipe()
        ours, theirs = socket.socketpair()
        ours.settimeout(FORK_SECONDS)
        try:
            with log.open() as output, theirs:
                socket.send_fds(self._control, [b"!"], [reading, output.fileno(), theirs.fileno()])
            send(ours, order)
            number, handles, _, _ = socket.recv_fds(ours, NUMBER.size, 1)
            return Forked(NUMBER.unpack(number)[0], handles[0], ours, writing)
        except (OSError, IndexError, struct.error) as error:  # too few bytes are no number
            ours.close()
            os.close(writing)
            raise Unready(f"the process that workers are forked from does not answer: {error!r}") from error
        finally:
            os.close(reading)

    def close(self) -> None:
        """End it; its forks go on."""
        self._process.kill()
        self._process.wait()
        self._control.close()


class Forked:
    """A `Child` that was forked. Its parent waits for it and says how it ended, as long as that lives itself."""

    def __init__(self, pid: int, handle: int, status: socket.socket, lifeline: int) -> None:
        self.pid, self._status, self._lifeline = pid, status, lifeline
        self._handle: int | None = handle
        self._using = threading.Lock()

    def signal(self, number: int) -> None:
        """As `Child` says."""
        with self._using, suppress(ProcessLookupError):
            if self._handle is not None:
                signal.pidfd_send_signal(self._handle, number)

    def wait(self) -> int | None:
        """As `Child` says."""
        assert self._handle is not None
        self._status.settimeout(None)
        try:
            code: int | None = NUMBER.unpack(take(self._status, NUMBER.size))[0]
        except (EOFError, OSError):
            ended = select.poll()
            ended.register(self._handle, select.POLLIN)
            ended.poll()
            signal_group(self.pid, signal.SIGTERM)
            code = None
        self._status.close()
        os.close(self._lifeline)
        with self._using:
            os.close(self._handle)
            self._handle = None
        return code
