"""A worker's process from the inside: it dials its controller, serves its role, and ends with the controller."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from areal_core.workers.address import Listener, connect, path_of
from areal_core.workers.build import import_files
from areal_core.workers.dial import dial
from areal_core.workers.hello import Card, Refused, greet
from areal_core.workers.lifeline import Lifeline, deadline
from areal_core.workers.link import Link
from areal_core.workers.service import Service, make_service
from areal_core.workers.wire import Wire

EXIT_GRACE = 60.0
"""Seconds that cleaning up may take; whoever asked the worker to end usually waits for less."""

log = logging.getLogger(__name__)


@frozen
class HostOptions:
    """The command line of a worker."""

    connect: str
    name: str
    role: str
    start: str = ""
    lifeline: bool = False
    listen: str | None = None


async def host(options: HostOptions, key: bytes) -> None:
    """Serve until the controller's link ends, its process does, or SIGTERM comes; then clean up.

    Raises:
        Refused: this end or the other does not belong to the run. `OSError`: there is no controller.
        What building the service raises.

    """
    over, doors = asyncio.Event(), _Doors(key)
    _end_on_signals(over)
    if options.lifeline:
        Lifeline(over, _sockets(options.connect))
    async with AsyncExitStack() as owned:
        owned.push_async_callback(doors.close)
        card = await doors.open(options)
        wire = await connect(options.connect)
        controller = await greet(wire, "dialer", key, card)
        _import_as_there(controller)
        service = make_service(options.role, functools.partial(dial, key=key, card=card), threaded=True)
        owned.push_async_callback(service.close)
        link = Link(wire, controller.name, service=service)
        doors.serve(service)
        log.info("%s (%s) serves at %s", options.name, options.role, card.address)
        await _first(over.wait(), link.lost())
        deadline(EXIT_GRACE)
        await doors.close()
        await link.close()


class _Doors:
    """Where other workers reach this one; whoever comes early waits until the service is there."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._listener = Listener(self._accept)
        self._service: asyncio.Future[Service] = asyncio.get_running_loop().create_future()
        self._card: Card
        self._links: set[Link] = set()

    async def open(self, options: HostOptions) -> Card:
        await self._listener.bind(options.listen or _beside(options.connect))
        self._card = Card(options.name, options.role, self._listener.address, options.start)
        return self._card

    def serve(self, service: Service) -> None:
        self._service.set_result(service)

    async def close(self) -> None:
        await self._listener.close()
        for link in tuple(self._links):
            await link.close()

    async def _accept(self, wire: Wire) -> None:
        try:
            theirs = await greet(wire, "listener", self._key, self._card)
        except Refused as error:
            log.warning("refused a link: %s", error)
            return
        link = Link(wire, theirs.name, service=await asyncio.shield(self._service))
        self._links.add(link)
        link.gone.add_done_callback(lambda _: self._links.discard(link))


def _beside(address: str) -> str:
    """Where to listen, given the controller's address: in the same private folder, or on the same host."""
    if (door := path_of(address)) is not None:
        return f"unix:{door.with_name(f'{os.getpid()}.sock')}"
    return f"{address.rpartition(':')[0]}:0"


def _sockets(address: str) -> list[Path]:
    paths = map(path_of, (address, _beside(address)))
    return [path for path in paths if path is not None]


def _import_as_there(controller: Card) -> None:
    """Find the modules that the controller finds, if it runs in the same environment, and its local plugins."""
    if controller.prefix == sys.prefix:
        sys.path.extend(entry for entry in controller.path if entry not in sys.path)
    import_files(controller.files)


async def _first(*waits: Coroutine[Any, Any, object]) -> None:
    """Return when one of them does."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _end_on_signals(over: asyncio.Event) -> None:
    """SIGTERM ends cleanly. SIGINT is the controller's: a terminal sends it to every process of a run."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(NotImplementedError):  # loops on Windows know no signal handlers
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
