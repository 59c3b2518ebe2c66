"""The controller's end of the process that workers are forked from (see `nursery`)."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_plugins.builtin.executors import LocalOptions
from areal_plugins.builtin.executors.nursery import NUMBER, Order, Syllabus, receive, send, take
from areal_plugins.builtin.executors.process import Log, Reaper, signal_group
from areal_plugins.builtin.executors.reception import SAME_HASHES, thread_variables

FORK_SECONDS = 10.0
"""What a fork may take; it takes a hundredth of a second."""

TELL_SECONDS = 2.0
"""What it may take to say how a fork has ended; it does so at once, unless it is stopped."""

AVAILABLE = sys.platform == "linux"
"""Elsewhere libraries of the system keep threads of their own, or processes have no handles."""


logger = logging.getLogger(__name__)


class Preloader:
    """Starts such a process when it is first needed, and another one when that is lost."""

    def __init__(self, options: LocalOptions, context: ExecutorContext, reaper: Reaper) -> None:
        """`reaper` ends it where it imports for ever: until it has done so it looks at nothing else."""
        self._options, self._context, self._reaper = options, context, reaper
        self.nursery: Preloaded | None = None
        self._preparing: asyncio.Task[None] | None = None

    async def ready(self, spec: WorkerSpec) -> bool:
        """Whether the worker `spec` can be forked, once that is known.

        Not where it wants devices, or variables of its own: some are read when a module is imported.
        """
        own = spec.environment.keys() - thread_variables(1).keys()
        wants = AVAILABLE and self._options.preload and bool(self._context.modules)
        if not wants or own or spec.python is not None or spec.place.devices:
            return False
        if self.nursery is not None and self.nursery.gone:
            logger.warning("the process that workers are forked from is gone; another one takes its place")
            self.nursery.close()
            self.nursery = self._preparing = None
        if self._preparing is None:
            self._preparing = asyncio.create_task(self._prepare())
        await asyncio.shield(self._preparing)
        return self.nursery is not None

    async def fork(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Log
    ) -> Forked | None:
        """A worker; None where none comes."""
        nursery = self.nursery
        if nursery is None:
            return None
        order = Order(name, tuple(arguments[arguments.index("--connect") :]), dict(environment))
        try:
            return await asyncio.to_thread(nursery.fork, order, log)
        except Unready as error:
            logger.warning("%s is started afresh: %s", name, error)
            nursery.end()
            return None

    async def close(self) -> None:
        """End it."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.wait({self._preparing})
        if self.nursery is not None:
            self.nursery.close()

    async def _prepare(self) -> None:
        path = tuple(map(os.path.abspath, sys.path))
        environment = {**SAME_HASHES, **os.environ, **thread_variables(1), "PYTHONUNBUFFERED": "1"}
        log = Log(self._context.logs / "preload.log")
        nursery = self.nursery = Preloaded(Syllabus(path, self._context.modules), environment, log)
        self._reaper.watch(nursery)
        try:
            await asyncio.to_thread(nursery.prepare, self._options.start_timeout)
        except Unready as error:
            logger.warning("workers are not forked: %s", error)
            nursery.close()
            self.nursery = None


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
        self.pid = self._process.pid
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

    @property
    def gone(self) -> bool:
        """Whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """Kill it; its forks go on."""
        self._process.kill()

    def close(self) -> None:
        """Leave nothing of it."""
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
        ended = select.poll()
        ended.register(self._handle, select.POLLIN)
        ended.poll()
        self._status.settimeout(TELL_SECONDS)
        try:
            code: int | None = NUMBER.unpack(take(self._status, NUMBER.size))[0]
        except (EOFError, OSError):
            signal_group(self.pid, signal.SIGTERM)
            code = None
        self._status.close()
        os.close(self._lifeline)
        with self._using:
            os.close(self._handle)
            self._handle = None
        return code
