"""Wires and links between two ends in this process, over a socket pair."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from areal_core.workers.link import Link
from areal_core.workers.service import methods_of
from areal_core.workers.wire import FRAME_LIMIT, Wire

Wires = Callable[[], AbstractAsyncContextManager[tuple[Wire, Wire]]]
Linked = Callable[..., AbstractAsyncContextManager[tuple[Link, Link]]]


@asynccontextmanager
async def _wires() -> AsyncIterator[tuple[Wire, Wire]]:
    loop = asyncio.get_running_loop()
    here, there = [(await loop.create_connection(Wire, sock=end))[1] for end in socket.socketpair()]
    try:
        yield here, there
    finally:
        here.abort("the test is over")
        there.abort("the test is over")
        await asyncio.gather(here.lost, there.lost)


@asynccontextmanager
async def _linked(service: Any, mine: Any = None, **options: Any) -> AsyncIterator[tuple[Link, Link]]:
    """A caller's link to `service`, and the service's own end; `mine` is what the caller serves."""
    async with _wires() as (here, there):
        here.limit = there.limit = FRAME_LIMIT
        caller = Link(here, "worker", methods_of(type(service)), service=mine, **options)
        served = Link(there, "controller", methods_of(type(mine)) if mine else {}, service=service)
        try:
            yield caller, served
        finally:
            await caller.close()
            await served.close()


@pytest.fixture
def wires() -> Wires:
    return _wires


@pytest.fixture
def linked() -> Linked:
    return _linked
