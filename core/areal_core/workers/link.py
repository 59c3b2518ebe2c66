"""A link: messages over one wire, calls in both directions.

Either end may offer a service and may call the other's. What ends the wire fails every call under
way at once, on both ends: outgoing calls raise `WorkerLost`, incoming ones are cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from areal_core.errors import WorkerLost
from areal_core.workers.incoming import Incoming
from areal_core.workers.message import Kind, Packer, Unpacker
from areal_core.workers.outgoing import Outgoing
from areal_core.workers.service import Method, Service, methods_of
from areal_core.workers.wire import Wire

CLOSE_GRACE = 1.0
"""Seconds that the other end gets to read what was sent before a close."""

Explain = Callable[[str], Awaitable[str]]
"""Makes of the wire's reason the real one (the exit code of a process, say); must not take long."""


class Link:
    """One end (`protocols.Peer`). `offers` are the methods of the other end, `service` is what this one serves."""

    def __init__(
        self,
        wire: Wire,
        name: str,
        offers: Mapping[str, Method] | None = None,
        service: Service | None = None,
        explain: Explain | None = None,
    ) -> None:
        self.name, self._wire, self._explain = name, wire, explain
        self._packer, self._unpacker = Packer(), Unpacker()
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._outgoing = Outgoing(name, offers or {}, self._send)
        self._incoming = Incoming(service, _offered(service), self._send, wire.drained)
        self._end = asyncio.create_task(self._ending())
        wire.attach(self._receive)

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """The method's result."""
        self._check()
        async with asyncio.timeout(timeout):
            await self._wire.drained()
            return await self._outgoing.call(method, args)

    async def stream(self, method: str, *args: Any) -> AsyncGenerator[Any, None]:
        """What the method yields."""
        self._check()
        await self._wire.drained()
        async with aclosing(self._outgoing.stream(method, args)) as items:
            async for item in items:
                yield item

    async def ping(self, timeout: float | None = None) -> None:
        """Return once the other end's loop has answered."""
        self._check()
        async with asyncio.timeout(timeout):
            await self._outgoing.ping()

    def beat(self) -> None:
        """Ask for a sign of life, without waiting for it; see `heard`."""
        self._send(Kind.PING, 0)

    @property
    def heard(self) -> float:
        """When the other end last sent anything, by the loop's clock."""
        return self._wire.heard

    async def lost(self) -> str:
        """The reason, once the link has ended."""
        return await asyncio.shield(self.gone)

    async def close(self) -> None:
        """Send what is queued, then end; calls under way fail."""
        self._wire.close()
        await asyncio.wait({self._wire.lost}, timeout=CLOSE_GRACE)
        self._wire.abort("the other end did not read what was left to send")
        await asyncio.shield(self._end)

    def abort(self, reason: str) -> None:
        """End at once."""
        self._wire.abort(reason)

    def _check(self) -> None:
        if self.gone.done():
            raise WorkerLost(self.name, self.gone.result())

    def _send(self, kind: Kind, number: int, name: str = "", payload: Any = None) -> None:
        self._wire.send(*self._packer.pack(kind, number, name, payload))

    def _receive(self, head: memoryview, body: memoryview) -> None:
        message = self._unpacker.message(head)

        def payload(kind: Any) -> Any:
            return self._unpacker.payload(message, kind, body)

        if message.kind is Kind.PING:
            self._send(Kind.PONG, message.number)
        elif message.kind in Incoming.KINDS:
            self._incoming.take(message, payload)
        else:
            self._outgoing.take(message, payload)

    async def _ending(self) -> None:
        reason = await asyncio.shield(self._wire.lost)
        self._incoming.cancel()
        if self._explain is not None:
            reason = await self._explain(reason)
        self.gone.set_result(reason)
        self._outgoing.fail(reason)
        await self._incoming.ended()


def _offered(service: Service | None) -> Mapping[str, Method]:
    return {} if service is None else methods_of(type(service))
