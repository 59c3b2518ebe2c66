"""`python -m areal_plugins.builtin.executors.nursery FD`: the process that workers are forked from.

It has imported what they need and does nothing else: it has one thread, no event loop and no device,
so that a fork of it is as good as a fresh interpreter. It ends when the socket FD to its controller does.

The controller first sends what to import and hears why no worker can be forked, or "". Each fork is
then asked for with one byte and three descriptors: the worker's standard input, its log, and a socket
that brings the order, takes away the worker's number with a handle of it and, when it has ended, its exit code.
"""

from __future__ import annotations

import gc
import logging
import os
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import msgspec
from attrs import frozen

from areal_core.workers.faults import RAISED
from areal_core.workers.lifeline import wake_as_orphan
from areal_plugins.builtin.executors.process import signal_group

NUMBER = struct.Struct("!i")
"""How a worker's process number and exit code are told."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


@frozen
class Syllabus:
    """The modules to import, and where they may be found."""

    path: tuple[str, ...]
    modules: tuple[str, ...]


@frozen
class Order:
    """A worker: its name, command line and whole environment."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]


def send(to: socket.socket, what: object) -> None:
    """One message."""
    data = msgspec.json.encode(what)
    to.sendall(NUMBER.pack(len(data)) + data)


def receive(source: socket.socket, kind: type[T]) -> T:
    """The next message; raises `EOFError` where the other end is gone."""
    (size,) = NUMBER.unpack(take(source, NUMBER.size))
    return msgspec.json.decode(take(source, size), type=kind)


def take(source: socket.socket, size: int) -> bytes:
    """So many bytes; raises `EOFError` where the other end is gone."""
    data = b""
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def main(arguments: Sequence[str]) -> int:
    """Prepare, then fork; the exit code, in every fork its worker's."""
    control = socket.socket(fileno=int(arguments[0]))
    wake_as_orphan()
    try:
        problem = _prepare(receive(control, Syllabus))
        send(control, problem)
    except (EOFError, OSError):  # the controller has gone meanwhile
        return 0
    order = None if problem else Nursery(control).serve()
    return 0 if order is None else _become(order)


class Nursery:
    """Forks workers, and tells the controller how each of them ended."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, tuple[int, socket.socket]] = {}
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)

    def serve(self) -> Order | None:
        """None when the controller has gone; in every fork, what that is to be."""
        while True:
            for handle, _ in self._poll.poll():
                if handle != self._control.fileno():
                    self._bury(handle)
                    continue
                data, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
                if not data:
                    return None
                if (order := self._fork(*descriptors)) is not None:
                    return order

    def _fork(self, lifeline: int, log: int, told: int) -> Order | None:
        """The order, in the fork alone."""
        status = socket.socket(fileno=told)
        try:
            order = receive(status, Order)
            pid = os.fork()
        except (EOFError, OSError) as error:  # whoever asked sees that nothing comes, and starts a process afresh
            logger.warning("no worker was forked: %r", error)
            status.close()
            pid = -1
        if pid == 0:
            self._leave(lifeline, log, status)
            return order
        os.close(lifeline)
        os.close(log)
        if pid > 0:
            self._raise(pid, status)
        return None

    def _raise(self, pid: int, status: socket.socket) -> None:
        """Tell who the child is, and watch it."""
        handle = os.pidfd_open(pid)
        self._children[handle] = (pid, status)
        self._poll.register(handle, select.POLLIN)
        with suppress(OSError):  # the controller has gone
            socket.send_fds(status, [NUMBER.pack(pid)], [handle])

    def _leave(self, lifeline: int, log: int, status: socket.socket) -> None:
        """In the fork: a session of its own, its own input and output, and nothing of the nursery's."""
        os.setsid()
        for source, target in ((lifeline, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.close(lifeline)
        os.close(log)
        status.close()
        self._control.close()
        for handle, (_, other) in self._children.items():
            os.close(handle)
            other.close()

    def _bury(self, handle: int) -> None:
        """A child has ended: its number is its own until it is waited for, so its group is told first."""
        pid, status = self._children.pop(handle)
        self._poll.unregister(handle)
        os.close(handle)
        signal_group(pid, signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with status, suppress(OSError):  # the controller has gone
            status.sendall(NUMBER.pack(code))


def _prepare(syllabus: Syllabus) -> str:
    """Import; why no worker can be forked from this process now, or nothing."""
    sys.path.extend(entry for entry in syllabus.path if entry not in sys.path)
    _import(syllabus.modules)
    gc.collect()
    gc.freeze()  # a collection in a fork leaves these objects, and so their shared pages, alone
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        return f"what it imported runs {threads - 1} threads"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "what it imported has initialised a device"
    return ""


def _import(modules: Iterable[str]) -> None:
    """What cannot be imported is the workers' to complain about: they know what for."""
    for module in modules:
        try:
            import_module(module)
        except RAISED as error:
            logger.warning("%s cannot be imported beforehand: %s: %s", module, type(error).__name__, error)


def _become(order: Order) -> int:
    """Be the worker; its exit code."""
    from areal_core.workers.__main__ import main as work

    Path("/proc/self/comm").write_text(order.name[:15])
    os.environ.clear()
    os.environ.update(order.environment)
    if (torch := sys.modules.get("torch")) is not None:  # it read the nursery's variable when it was loaded
        torch.set_num_threads(int(order.environment["OMP_NUM_THREADS"]))
    if (random := sys.modules.get("numpy.random")) is not None:
        random.seed()
    return work(order.arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
