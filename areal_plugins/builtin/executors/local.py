"""Workers as processes on this machine, each with its own interpreter, threads and log."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.workers.address import HAS_UNIX
from areal_plugins.builtin.executors import LocalOptions, cores
from areal_plugins.builtin.executors.preloaded import Preloader
from areal_plugins.builtin.executors.process import Child, Log, Process, Reaper, Spawned
from areal_plugins.builtin.executors.reception import Reception
from areal_plugins.builtin.executors.worker import LinkedWorker

if TYPE_CHECKING:
    from areal_plugins.builtin.ownership import OwnedDirectory

_LONGEST = 104
"""Bytes of a Unix socket's path, on the system that allows the fewest."""

PREFIX = "areal-sockets-"
"""How the folders of all controllers are called. The next controller removes those of the killed."""


def make(options: LocalOptions, context: ExecutorContext) -> LocalExecutor:
    """The factory of `local`."""
    return LocalExecutor(options, context)


class LocalExecutor:
    """Starts processes, which dial back. Workers find each other's sockets in the same private folder."""

    def __init__(self, options: LocalOptions, context: ExecutorContext) -> None:
        self._options, self._context = options, context
        self._folder: OwnedDirectory | None = None
        self._reception = Reception(context)
        self._cores = cores.allot(context.workers, cores.available(), os.getpid()) if options.pin else {}
        self._reaper = Reaper()
        self._preloader = Preloader(options, context, self._reaper)
        self._launches: set[asyncio.Task[Process]] = set()
        self._processes: set[Process] = set()
        self._workers: set[LinkedWorker] = set()

    async def start(self, spec: WorkerSpec) -> LinkedWorker:
        """Start a process and wait until its service answers.

        Raises:
            WorkerLost: it ended first, or took longer than `start_timeout`; with the end of its log.
            InputError: its interpreter cannot be started.

        """
        await self._reception.open(self._door())
        process = await self._launch(spec)
        try:
            async with asyncio.timeout(self._options.start_timeout):
                worker = await self._reception.receive(spec, process)
        except (WorkerLost, TimeoutError) as error:
            process.kill()
            raise WorkerLost(spec.name, self._obituary(process, error)) from error
        except asyncio.CancelledError:  # nobody wants it any more
            process.kill()
            raise
        self._workers.add(worker)
        process.swept.add_done_callback(lambda _: self._workers.discard(worker))
        return worker

    async def close(self) -> None:
        """End every worker; leave no process, socket or file but the logs."""
        await asyncio.gather(*self._launches, return_exceptions=True)
        await asyncio.gather(*(worker.stop(self._options.grace) for worker in self._workers))
        for process in self._processes:
            process.kill()
        await asyncio.gather(*(process.swept for process in self._processes))
        await self._preloader.close()
        await self._reception.close()
        if self._folder is not None:
            self._folder.remove()
        self._reaper.close()

    def _door(self) -> str:
        root = Path(tempfile.gettempdir())
        fits = len(os.fsencode(root / f"{PREFIX}12345678" / "controller.sock")) < _LONGEST
        if self._options.link == "tcp" or not HAS_UNIX or (self._options.link == "auto" and not fits):
            return "tcp:127.0.0.1:0"
        if self._folder is None:
            from areal_plugins.builtin.ownership import OwnedDirectory, sweep  # needs a Unix

            sweep(root, PREFIX)
            self._folder = OwnedDirectory(root, PREFIX)
            self._reaper.folder = self._folder.path
        return f"unix:{self._folder.path / 'controller.sock'}"

    async def _launch(self, spec: WorkerSpec) -> Process:
        """A process; where whoever waits for it here is cancelled it is killed as soon as it is there."""
        forks = await self._preloader.ready(spec)
        launch = asyncio.create_task(self._begin(spec, forks))
        self._launches.add(launch)
        launch.add_done_callback(self._launches.discard)
        try:
            return await asyncio.shield(launch)
        except asyncio.CancelledError:
            launch.add_done_callback(_kill)
            raise

    async def _begin(self, spec: WorkerSpec, forks: bool) -> Process:
        log = Log(self._context.logs / f"{spec.name}.log")
        arguments = self._reception.arguments(spec)
        variables = self._reception.variables(spec, os.environ)
        child: Child | None = None
        if forks:
            child = await self._preloader.fork(spec.name, arguments, variables, log)
        if child is None:
            child = Spawned([spec.python or sys.executable, *arguments], variables, log)
        if child.pid is not None and spec.name in self._cores:
            cores.keep(child.pid, self._cores[spec.name])  # before anybody waits for it: the number is still its own
        process = Process(child, log)
        self._reaper.watch(process)
        self._processes.add(process)
        process.swept.add_done_callback(lambda _: self._processes.discard(process))
        return process

    def _obituary(self, process: Process, error: WorkerLost | TimeoutError) -> str:
        slow = f"no answer within {self._options.start_timeout:g} s"
        reason = error.reason if isinstance(error, WorkerLost) else slow
        tail = process.tail()
        return f"{reason}, before it could serve" + (f"; its log ends:\n{tail}" if tail else "; its log is empty")


def _kill(launch: asyncio.Task[Process]) -> None:
    if launch.exception() is None:
        launch.result().kill()
