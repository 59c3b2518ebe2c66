"""Functions that run in processes of their own, which are killed when a call takes too long.

A call that hangs in C code heeds no Python time-out, a thread cannot be ended, and forking a process
that has threads is unsafe: so each process is a fresh interpreter that imports one function, says
that it is ready, and serves calls over a pipe. Arguments and results are plain data (msgpack, never
pickle: what comes back may be under a stranger's control).
"""

from __future__ import annotations

import asyncio
import faulthandler
import itertools
import os
import resource
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import IO, Any

import msgspec
from attrs import frozen

from areal_plugins.builtin.rewards.target import find

_STARTUP_SECONDS = 120.0
_GRACE_SECONDS = 1.0
_HEADER = 4


class CallFailed(RuntimeError):
    """The function raised in its process, or the process ended."""


class LimitExceeded(CallFailed):
    """The call took too long, or too much memory; its process was killed."""


@frozen
class Limits:
    """Of one call: its seconds, and the process's address space in MiB (None: no limit)."""

    seconds: float
    memory_mib: int | None = None


class IsolatedFunction:
    """`target` (`module:function` or `/path/file.py:function`) in at most `workers` processes.

    Processes are started as they are needed, reused, and end with this one, with all that they have
    started: when their pipe closes, and one that holds the interpreter's lock a second after its limit.
    """

    def __init__(self, target: str, limits: Limits, workers: int) -> None:
        self._target, self._limits = target, limits
        self._idle: deque[_Process] = deque()
        self._all: set[_Process] = set()
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="isolated")

    def start(self) -> None:
        """Start one process and wait until it is ready; raises `CallFailed` where it cannot import `target`."""
        self._idle.append(self._start())

    async def call(self, *args: Any) -> Any:
        """The function's result; waits for a process while all are busy.

        Raises:
            LimitExceeded: the call exceeded a limit.
            CallFailed: the function raised, or its process died.

        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self.call_blocking, *args)

    def call_blocking(self, *args: Any) -> Any:
        """The same, holding the thread that calls."""
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._start()
        try:
            return process.call(args, self._limits.seconds)
        finally:
            if process.alive:
                self._idle.append(process)
            else:
                self._all.discard(process)

    def close(self) -> None:
        """End all processes; calls under way fail."""
        for process in tuple(self._all):
            process.end()
        self._threads.shutdown(cancel_futures=True)  # each thread frees the process it waits for
        for process in tuple(self._all):
            process.free()

    def _start(self) -> _Process:
        process = _Process(self._target, self._limits)
        self._all.add(process)
        try:
            process.wait_until_ready()
        except CallFailed:
            process.end()
            process.free()
            self._all.discard(process)
            raise
        return process


class _Process:
    """One interpreter that serves calls, one at a time."""

    def __init__(self, target: str, limits: Limits) -> None:
        arguments = f"{target!r}, {limits.memory_mib!r}"
        command = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve({arguments})"
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._calls, self._replies = self._process.stdin, self._process.stdout
        self._numbers = itertools.count(1)

    @property
    def alive(self) -> bool:
        return self._process.returncode is None

    def wait_until_ready(self) -> None:
        """Return once the function is imported."""
        self._reply(0, _STARTUP_SECONDS)

    def call(self, args: tuple[Any, ...], seconds: float) -> Any:
        """The function's result."""
        number = next(self._numbers)
        try:
            _send(self._calls, msgspec.msgpack.encode((number, seconds, args)))
        except BrokenPipeError:
            raise self._died() from None
        return self._reply(number, seconds)

    def end(self) -> None:
        """Kill it, and what it started."""
        if self.alive:
            os.killpg(self._process.pid, signal.SIGKILL)

    def free(self) -> None:
        """Leave nothing of a process that was killed or ended."""
        self._process.wait()
        with suppress(BrokenPipeError):  # a call that it did not take
            self._calls.close()
        self._replies.close()

    def _reply(self, number: int, seconds: float) -> Any:
        try:
            answered, outcome, value = _read_within(self._replies.fileno(), seconds)
        except TimeoutError:
            raise self._killed(f"no result within {seconds:g} s") from None
        except EOFError:
            raise self._died() from None
        if answered != number:
            self.end()
            self.free()
            raise CallFailed(f"its process answered call {answered} instead of {number}")
        if outcome == "memory":
            raise self._killed("it took more memory than it may")
        if outcome == "raised":
            raise CallFailed(value)
        return value

    def _killed(self, why: str) -> LimitExceeded:
        self.end()
        self.free()
        return LimitExceeded(why)

    def _died(self) -> CallFailed:
        self.end()  # what it started; its own pipe closed, so that how it ended is settled
        self.free()
        code = self._process.returncode
        return CallFailed(f"its process ended with {_signal_name(-code) if code < 0 else f'exit code {code}'}")


def serve(target: str, memory_mib: int | None) -> None:
    """What the process does: import `target`, then answer calls until the pipe closes."""
    calls, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints belongs into the log
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with, args=(calls.fileno(),), daemon=True).start()
    if memory_mib is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_mib << 20, memory_mib << 20))
    functions: list[Callable[..., Any]] = []
    _send(replies, _reply_within(0, _STARTUP_SECONDS, lambda: functions.append(find(target))))
    if functions:
        _answer(functions[0], calls, replies)


def _end_with(pipe: int) -> None:
    """End this process and all that it has started once the other end of `pipe` is closed."""
    poll = select.poll()
    poll.register(pipe, 0)  # no event but that one, which cannot be left out
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def _answer(function: Callable[..., Any], calls: IO[bytes], replies: IO[bytes]) -> None:
    while header := calls.read(_HEADER):
        number, seconds, args = msgspec.msgpack.decode(calls.read(int.from_bytes(header, "big")))
        _send(replies, _reply_within(number, seconds, partial(function, *args)))
    os.killpg(0, signal.SIGKILL)  # the thread that waits for this may come too late


def _reply_within(number: int, seconds: float, call: Callable[[], Any]) -> bytes:
    """The encoded outcome of `call`.

    The watchdog ends the process even in C code, with nobody left to kill it. It is none of the
    operating system's alarms: those are the function's to use.
    """
    process = os.getpid()
    faulthandler.dump_traceback_later(seconds + _GRACE_SECONDS, exit=True, file=2)
    try:
        outcome = _outcome(number, call)
    finally:
        if os.getpid() != process:  # the function has forked, and this is not who was asked
            os._exit(0)
    faulthandler.cancel_dump_traceback_later()
    return outcome


def _outcome(number: int, call: Callable[[], Any]) -> bytes:
    try:
        return msgspec.msgpack.encode((number, "done", call()))
    except MemoryError:
        return msgspec.msgpack.encode((number, "memory", ""))
    except BaseException as error:
        traceback.print_exc()
        return msgspec.msgpack.encode((number, "raised", f"{type(error).__name__}: {error}"))


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_HEADER, "big") + message)
    pipe.flush()


def _read_within(pipe: int, seconds: float) -> Any:
    """The next message; raises `TimeoutError`, or `EOFError` where the other end is closed."""
    deadline = time.monotonic() + seconds
    size = int.from_bytes(_take(pipe, _HEADER, deadline), "big")
    return msgspec.msgpack.decode(_take(pipe, size, deadline))


def _take(pipe: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(data) < size:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise TimeoutError
        chunk = os.read(pipe, size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _signal_name(number: int) -> str:
    return f"signal {number} ({signal.Signals(number).name})"
