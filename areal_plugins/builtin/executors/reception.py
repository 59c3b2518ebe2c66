"""Where an executor's workers report: they dial back, prove that they belong to the run, and become handles."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Mapping
from typing import Any

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.workers.address import Listener
from areal_core.workers.hello import KEY_VARIABLE, Card, Refused, greet
from areal_core.workers.service import methods_of, service_class
from areal_core.workers.wire import Wire
from areal_plugins.builtin.executors.worker import Body, LinkedWorker

THREAD_VARIABLES = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")

SAME_HASHES = {"PYTHONHASHSEED": "0"}
"""Sets of texts are in one order in all workers, which some data sets depend on; the caller's own value wins."""

ANOTHER_INTERPRETER = {"PYTHONPATH": "", "PYTHONHOME": "", "VIRTUAL_ENV": ""}
"""What says where an interpreter finds its modules does not hold for another one; empty is as good as not set."""

log = logging.getLogger(__name__)
Arrival = asyncio.Future[tuple[Wire, Card]]


def thread_variables(threads: int) -> dict[str, str]:
    """What limits the libraries that compute to so many threads."""
    return {f"{library}_NUM_THREADS": str(threads) for library in THREAD_VARIABLES}


class Reception:
    """The controller's address, and the key of its run."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._key = secrets.token_bytes(32)
        self._listener = Listener(self._accept)
        self._binding = asyncio.Lock()
        self._starts: dict[str, str] = {}
        self._arrivals: dict[str, Arrival] = {}

    async def open(self, address: str) -> None:
        """Listen at `unix:/path` or `tcp:host:port` (0: a free one), unless it listens already."""
        async with self._binding:
            if not self._listener.address:
                await self._listener.bind(address)

    async def close(self) -> None:
        """Listen no more."""
        await self._listener.close()

    def arguments(self, spec: WorkerSpec, listen: str | None = None) -> list[str]:
        """What the interpreter of the worker `spec` is told; `listen` is needed on another machine than this.

        From now on nobody of this name is received who was told so before: a process that was given up may
        still come, once its machine is back.

        Raises:
            PluginError: there is no such role.

        """
        service_class(spec.role)
        start = self._starts[spec.name] = secrets.token_hex(8)
        asked = ("--connect", self._listener.address, "--name", spec.name, "--role", spec.role, "--start", start)
        return ["-P", "-m", "areal_core.workers", *asked, "--lifeline", *(("--listen", listen) if listen else ())]

    def variables(self, spec: WorkerSpec, outer: Mapping[str, str]) -> dict[str, str]:
        """The worker's environment in a place whose own is `outer`."""
        own = {"PYTHONUNBUFFERED": "1", KEY_VARIABLE: self._key.hex()}
        foreign = ANOTHER_INTERPRETER if spec.python not in (None, sys.executable) else {}
        return {**SAME_HASHES, **outer, **foreign, **thread_variables(spec.place.threads), **spec.environment, **own}

    async def receive(self, spec: WorkerSpec, body: Body) -> LinkedWorker:
        """The handle of the worker that was started in `body`, once its service answers.

        Raises:
            WorkerLost: its body ends before.

        """
        offers = methods_of(service_class(spec.role))
        wire, card = await self._arrival(spec.name, body)
        worker = LinkedWorker(spec, card.address, body, wire, offers)
        await worker.ready(self._context.heartbeat)
        return worker

    async def _arrival(self, name: str, body: Body) -> tuple[Wire, Card]:
        arrival: Arrival = asyncio.get_running_loop().create_future()
        self._arrivals[name] = arrival
        try:
            either: tuple[asyncio.Future[Any], ...] = (arrival, body.exited)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                raise WorkerLost(name, body.exited.result())
            return arrival.result()
        finally:
            del self._arrivals[name]

    async def _accept(self, wire: Wire) -> None:
        mine = Card("controller", path=tuple(map(os.path.abspath, sys.path)), files=self._context.files)
        try:
            card = await greet(wire, "listener", self._key, mine)
        except Refused as error:
            log.warning("refused a link: %s", error)
            return
        arrival = self._arrivals.get(card.name)
        if arrival is None or arrival.done() or card.start != self._starts.get(card.name):
            wire.close(f"no worker {card.name} is expected")
            return
        arrival.set_result((wire, card))
