"""The controller's handle of a worker elsewhere: its link and its body, which end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Protocol

from areal_core.contexts import WorkerSpec
from areal_core.workers.link import Link
from areal_core.workers.service import Method
from areal_core.workers.wire import Wire

LINK_GRACE = 2.0
"""Seconds between the end of a worker's link and that of its body, before it is killed."""
TERMINATE_GRACE = 2.0
"""Seconds between asking a body to end and making it."""
BEATS = 4
"""So many signs of life are asked for in a heartbeat time-out; when none comes, the worker hangs."""


class Body(Protocol):
    """What a worker lives in: a process here, or one that is started and watched on another machine."""

    pid: int | None
    """Of a process on this machine; None for others."""
    exited: asyncio.Future[str]
    """Resolves to how it ended."""
    swept: asyncio.Future[None]
    """Resolves once nothing of it is left, which is after `exited`."""

    def terminate(self) -> None:
        """Ask it to end."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


class LinkedWorker:
    """A `protocols.Worker`: calls go over the link, and the body knows how it ended."""

    def __init__(self, spec: WorkerSpec, address: str, body: Body, wire: Wire, offers: Mapping[str, Method]) -> None:
        self.spec, self.name, self.address = spec, spec.name, address
        self.pid: int | None = body.pid
        self._body = body
        self._reason: str | None = None
        self._link = Link(wire, spec.name, offers, explain=self._explain)
        self._watching = asyncio.create_task(self._watch())

    async def ready(self, heartbeat: float) -> None:
        """Return once its service answers; from then on, silence for `heartbeat` seconds is its end."""
        await self._link.ping()
        self._beating = asyncio.create_task(self._beat(heartbeat))

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """The method's result."""
        return await self._link.call(method, *args, timeout=timeout)

    def stream(self, method: str, *args: Any) -> AsyncGenerator[Any, None]:
        """What the method yields."""
        return self._link.stream(method, *args)

    async def lost(self) -> str:
        """The reason, once it is gone."""
        return await self._link.lost()

    async def close(self) -> None:
        """End the link; a worker without its controller ends by itself."""
        self._reason = self._reason or "stopped"
        await self._link.close()

    async def stop(self, grace: float) -> None:
        """Ask it to end, then make it; return once nothing of it is left."""
        await self.close()
        if not await self._ends_within(grace):
            self._body.terminate()
            if not await self._ends_within(TERMINATE_GRACE):
                self._body.kill()
        await asyncio.shield(self._body.swept)

    def kill(self) -> None:
        """End it now."""
        self._end("killed")

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._body.kill()

    async def _ends_within(self, seconds: float) -> bool:
        await asyncio.wait({self._body.exited}, timeout=seconds)
        return self._body.exited.done()

    async def _watch(self) -> None:
        self._link.abort(await asyncio.shield(self._body.exited))

    async def _explain(self, wire_reason: str) -> str:
        """How it ended; the link alone cannot know."""
        if self._reason is None and not await self._ends_within(LINK_GRACE):
            self._end(wire_reason)
        return self._reason or self._body.exited.result()

    async def _beat(self, timeout: float) -> None:
        """Count beats, not time: a controller that was suspended itself must not blame its workers."""
        silent, heard = 0, self._link.heard
        while not self._link.gone.done():
            self._link.beat()
            await asyncio.wait({self._link.gone}, timeout=timeout / BEATS)
            silent = silent + 1 if self._link.heard == heard else 0
            heard = self._link.heard
            if silent == BEATS:
                self._end(f"hung: no heartbeat for {timeout:g} s")
                return
