"""What a worker lives in: a process on another machine, watched by its keeper."""

from __future__ import annotations

import asyncio

from areal_plugin_ray.records import Ending, Order
from areal_plugins import RemoteError, WorkerLost
from areal_plugins.protocols import Peer, WorkerSpec

KILL_GRACE = 6.0
"""Seconds after which a worker that was killed counts as gone, though nobody there says so."""


class RayBody:
    """An `executors.Body`. `ending` is known once `exited` is."""

    pid: int | None = None

    def __init__(self, spec: WorkerSpec, broker: Peer, keeper: int, order: Order) -> None:
        self.spec = spec
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[str] = loop.create_future()
        self.swept: asyncio.Future[None] = loop.create_future()
        self.ending = Ending("")
        self._broker, self._keeper = broker, keeper
        self._tasks = {asyncio.create_task(self._live(order))}

    def terminate(self) -> None:
        """Ask it to end."""
        self._spawn_end(kill=False)

    def kill(self) -> None:
        """End it now; where its machine is out of reach, give it up."""
        if not self.exited.done():
            self._spawn_end(kill=True)

    async def close(self) -> None:
        """End it, and wait for that."""
        self.kill()
        await asyncio.wait({self.exited})

    def _spawn_end(self, kill: bool) -> None:
        self._tasks.add(asyncio.create_task(self._end(kill)))

    async def _live(self, order: Order) -> None:
        try:
            ending = await self._broker.call("run", self._keeper, order)
        except (RemoteError, WorkerLost) as error:
            ending = Ending(f"the link to Ray is lost: {error}")
        self._over(ending)

    async def _end(self, kill: bool) -> None:
        try:
            await self._broker.call("end", self._keeper, kill)
        except (RemoteError, WorkerLost):
            return  # `run` ends for the same reason, and tells it
        if kill:
            await asyncio.wait({self.exited}, timeout=KILL_GRACE)
            self._over(Ending("killed; its machine does not answer"))

    def _over(self, ending: Ending) -> None:
        if not self.exited.done():
            self.ending = ending
            self.exited.set_result(ending.reason)
            self.swept.set_result(None)
