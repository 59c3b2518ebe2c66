"""Workers as processes on this machine, each with its own memory, threads and log."""

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
from areal_plugins.builtin.executors.nursery import Order, Syllabus
from areal_plugins.builtin.executors.preloaded import AVAILABLE, Preloaded, Unready
from areal_plugins.builtin.executors.process import Child, Log, Process, Spawned, describe
from areal_plugins.builtin.executors.worker import LocalWorker

THREAD_VARIABLES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")

_SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets of texts are in one order in all workers, which some data sets depend on; the caller's own value wins."""

_UNBUFFERED = {"PYTHONUNBUFFERED": "1"}

logger = logging.getLogger(__name__)
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
        self._nursery: Preloaded | None = None
        self._preloading: asyncio.Task[Preloaded | None] | None = None
        self._launches: set[asyncio.Task[Process]] = set()
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
        preloaded = await self._preloaded() if self._may_fork(spec) else None
        process = await self._launch(spec, preloaded)
        try:
            async with asyncio.timeout(self._options.start_timeout):
                wire, card = await self._arrival(spec.name, process)
                worker = LocalWorker(spec, card.address, process, wire, offers)
                self._workers.append(worker)
                await worker.ready(self._context.heartbeat)
        except (WorkerLost, TimeoutError) as error:
            process.kill()
            raise WorkerLost(spec.name, self._obituary(process, error)) from error
        return worker

    async def close(self) -> None:
        """End every worker; leave no process, socket or file but the logs."""
        await asyncio.gather(*self._launches, return_exceptions=True)
        await asyncio.gather(*(worker.stop(self._options.grace) for worker in self._workers))
        for process in self._processes:
            process.kill()
        await asyncio.gather(*(process.swept for process in self._processes))
        if self._preloading is not None:
            self._preloading.cancel()
            await asyncio.wait({self._preloading})
        if self._nursery is not None:
            self._nursery.close()
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
            logger.warning("refused a link: %s", error)
            return
        arrival = self._arrivals.get(card.name)
        if arrival is None or arrival.done():
            wire.close(f"no worker {card.name} is expected")
            return
        arrival.set_result((wire, card))

    def _may_fork(self, spec: WorkerSpec) -> bool:
        """Not where a worker wants devices, or variables of its own: some are read when a module is imported."""
        own = spec.environment.keys() - _thread_variables(1).keys()
        plain = spec.python is None and not own and not spec.place.devices
        return AVAILABLE and self._options.preload and plain and bool(self._context.modules)

    async def _preloaded(self) -> Preloaded | None:
        """What workers are forked from, once it is ready; None where it cannot be had."""
        if self._preloading is None:
            self._preloading = asyncio.create_task(self._preload())
        return await asyncio.shield(self._preloading)

    async def _preload(self) -> Preloaded | None:
        environment = {**_SAME_HASHES, **os.environ, **_thread_variables(1), **_UNBUFFERED}
        path = tuple(map(os.path.abspath, sys.path))
        self._nursery = Preloaded(Syllabus(path, self._context.modules), environment, self._log("preload"))
        try:
            await asyncio.to_thread(self._nursery.prepare, self._options.start_timeout)
        except Unready as error:
            logger.warning("workers are not forked: %s", error)
            self._nursery.close()
            self._nursery = None
        return self._nursery

    async def _launch(self, spec: WorkerSpec, preloaded: Preloaded | None) -> Process:
        """A process, which is known to `close` even where whoever waits for it here is cancelled."""
        launch = asyncio.create_task(self._begin(spec, preloaded))
        self._launches.add(launch)
        launch.add_done_callback(self._launches.discard)
        return await asyncio.shield(launch)

    async def _begin(self, spec: WorkerSpec, preloaded: Preloaded | None) -> Process:
        log, child = self._log(spec.name), None
        if preloaded is not None:
            child = await self._fork(spec, preloaded, log)
        if child is None:
            child = Spawned(self._command(spec), self._environment(spec), log)
        process = Process(child, log)
        self._processes.append(process)
        return process

    async def _fork(self, spec: WorkerSpec, preloaded: Preloaded, log: Log) -> Child | None:
        """None where no fork comes; the next worker is then forked from another process."""
        order = Order(spec.name, self._arguments(spec), self._environment(spec))
        try:
            return await asyncio.to_thread(preloaded.fork, order, log)
        except Unready as error:
            logger.warning("%s is started afresh: %s", spec.name, error)
        if self._nursery is preloaded:
            preloaded.close()
            self._nursery = self._preloading = None
        return None

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
        return [spec.python or sys.executable, "-P", "-m", "areal_core.workers", *self._arguments(spec)]

    def _arguments(self, spec: WorkerSpec) -> tuple[str, ...]:
        return ("--connect", self._listener.address, "--name", spec.name, "--role", spec.role, "--lifeline")

    def _environment(self, spec: WorkerSpec) -> dict[str, str]:
        own = {**_UNBUFFERED, KEY_VARIABLE: self._key.hex()}
        return {**_SAME_HASHES, **os.environ, **_thread_variables(spec.place.threads), **spec.environment, **own}

    def _log(self, name: str) -> Log:
        return Log(self._context.logs / f"{name}.log")


def _thread_variables(threads: int) -> dict[str, str]:
    return {f"{library}_NUM_THREADS": str(threads) for library in THREAD_VARIABLES}
