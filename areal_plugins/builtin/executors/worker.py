"""The controller's handle of a worker process: its link and its process, which end together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from areal_core.contexts import WorkerSpec
from areal_core.workers.link import Link
from areal_core.workers.service import Method
from areal_core.workers.wire import Wire
from areal_plugins.builtin.executors.process import Process, describe

LINK_GRACE = 2.0
"""Seconds between the end of a worker's link and that of its process, before it is killed."""
TERMINATE_GRACE = 2.0
"""Seconds between SIGTERM and SIGKILL."""
BEATS = 4
"""So many signs of life are asked for in a heartbeat time-out; when none comes, the worker hangs."""


class LocalWorker:
    """A `protocols.Worker`."""

    def __init__(
        self, spec: WorkerSpec, address: str, process: Process, wire: Wire, offers: Mapping[str, Method]
    ) -> None:
        self.spec, self.name, self.address = spec, spec.name, address
        self.pid: int | None = process.pid
        self._process = process
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
        if not await self._process.ends_within(grace):
            self._process.terminate()
            if not await self._process.ends_within(TERMINATE_GRACE):
                self._process.kill()
        await asyncio.shield(self._process.swept)

    def kill(self) -> None:
        """End it now."""
        self._end("killed")

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._process.kill()

    async def _watch(self) -> None:
        code = await asyncio.shield(self._process.exited)
        self._link.abort(describe(code))

    async def _explain(self, wire_reason: str) -> str:
        """How it ended; the link alone cannot know."""
        if self._reason is None and not await self._process.ends_within(LINK_GRACE):
            self._end(wire_reason)
        return self._reason or describe(self._process.exited.result())

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
