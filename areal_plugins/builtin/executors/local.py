"""Workers as processes on this machine, each with its own interpreter, threads and log."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.workers.address import HAS_UNIX, Listener
from areal_core.workers.hello import KEY_VARIABLE, Card, Refused, greet
from areal_core.workers.service import methods_of, service_class
from areal_core.workers.wire import Wire
from areal_plugins.builtin.executors import LocalOptions
from areal_plugins.builtin.executors.process import Process, describe
from areal_plugins.builtin.executors.worker import LocalWorker

THREAD_VARIABLES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")

_SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets of texts are in one order in all workers, which some data sets depend on; the caller's own value wins."""

log = logging.getLogger(__name__)
Arrival = asyncio.Future[tuple[Wire, Card]]


def make(options: LocalOptions, context: ExecutorContext) -> LocalExecutor:
    """The factory of `local`."""
    return LocalExecutor(options, context)


class LocalExecutor:
    """Starts processes, which dial back. Workers find each other's sockets in the same private folder."""

    def __init__(self, options: LocalOptions, context: ExecutorContext) -> None:
        self._options, self._context = options, context
        self._key = secrets.token_bytes(32)
        self._folder: Path | None = None
        self._listener = Listener(self._accept)
        self._binding = asyncio.Lock()
        self._arrivals: dict[str, Arrival] = {}
        self._processes: list[Process] = []
        self._workers: list[LocalWorker] = []

    async def start(self, spec: WorkerSpec) -> LocalWorker:
        """Start a process and wait until its service answers.

        Raises:
            WorkerLost: it ended first, or took longer than `start_timeout`; with the end of its log.
            InputError: its interpreter cannot be started.

        """
        offers = methods_of(service_class(spec.role))
        await self._bind()
        process = Process(self._command(spec), self._environment(spec), self._log(spec))
        self._processes.append(process)
        try:
            async with asyncio.timeout(self._options.start_timeout):
                wire, card = await self._arrival(spec.name, process)
                worker = LocalWorker(spec, card.address, process, wire, offers)
                self._workers.append(worker)
                await worker.ready(self._context.heartbeat)
        except (WorkerLost, TimeoutError) as error:
            process.kill()
            raise WorkerLost(spec.name, self._obituary(process, error)) from error
        except asyncio.CancelledError:  # nobody wants it any more
            process.kill()
            raise
        return worker

    async def close(self) -> None:
        """End every worker; leave no process, socket or file but the logs."""
        await asyncio.gather(*(worker.stop(self._options.grace) for worker in self._workers))
        for process in self._processes:
            process.kill()
        await asyncio.gather(*(process.swept for process in self._processes))
        await self._listener.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def _bind(self) -> None:
        async with self._binding:
            if not self._listener.address:
                await self._listener.bind(self._door())

    def _door(self) -> str:
        if self._options.link == "tcp" or not HAS_UNIX:
            return "tcp:127.0.0.1:0"
        self._folder = Path(tempfile.mkdtemp(prefix="areal-"))
        return f"unix:{self._folder / 'controller.sock'}"

    async def _accept(self, wire: Wire) -> None:
        mine = Card("controller", path=tuple(map(os.path.abspath, sys.path)), files=self._context.files)
        try:
            card = await greet(wire, "listener", self._key, mine)
        except Refused as error:
            log.warning("refused a link: %s", error)
            return
        arrival = self._arrivals.get(card.name)
        if arrival is None or arrival.done():
            wire.close(f"no worker {card.name} is expected")
            return
        arrival.set_result((wire, card))

    async def _arrival(self, name: str, process: Process) -> tuple[Wire, Card]:
        """The link that the worker `name` opens; raises `WorkerLost` where its process ends before."""
        arrival: Arrival = asyncio.get_running_loop().create_future()
        self._arrivals[name] = arrival
        try:
            either: tuple[asyncio.Future[Any], ...] = (arrival, process.exited)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                raise WorkerLost(name, describe(process.exited.result()))
            return arrival.result()
        finally:
            del self._arrivals[name]

    def _obituary(self, process: Process, error: WorkerLost | TimeoutError) -> str:
        slow = f"no answer within {self._options.start_timeout:g} s"
        reason = error.reason if isinstance(error, WorkerLost) else slow
        tail = process.tail()
        return f"{reason}, before it could serve" + (f"; its log ends:\n{tail}" if tail else "; its log is empty")

    def _command(self, spec: WorkerSpec) -> list[str]:
        address = self._listener.address
        asked = ("--connect", address, "--name", spec.name, "--role", spec.role, "--lifeline")
        return [spec.python or sys.executable, "-P", "-m", "areal_core.workers", *asked]

    def _environment(self, spec: WorkerSpec) -> dict[str, str]:
        threads = {f"{library}_NUM_THREADS": str(spec.place.threads) for library in THREAD_VARIABLES}
        own = {"PYTHONUNBUFFERED": "1", KEY_VARIABLE: self._key.hex()}
        return {**_SAME_HASHES, **os.environ, **threads, **spec.environment, **own}

    def _log(self, spec: WorkerSpec) -> Path:
        self._context.logs.mkdir(parents=True, exist_ok=True)
        return self._context.logs / f"{spec.name}.log"
