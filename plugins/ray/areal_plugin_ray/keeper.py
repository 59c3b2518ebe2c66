"""The actor that stands for one worker on its machine: it holds the resources, and keeps the worker's process.

The process is not the actor's own: it may need another interpreter, its threads and signals are nobody
else's, and how it ended is known exactly. It ends when the actor does, whose end closes its standard input.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from areal_plugin_ray.records import Ending, Order
from areal_plugins.workers import Process, Reaper, spawn


class Keeper:
    """Made by Ray, once for each start of a worker; all methods run on one event loop."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._reaper = Reaper()

    async def node(self) -> str:
        """The machine that Ray chose."""
        import ray

        found: str = ray.get_runtime_context().get_node_id()
        return found

    async def sees(self, folder: str) -> bool:
        """Whether `folder` is there, seen from this machine."""
        return await asyncio.to_thread(Path(folder).is_dir)

    async def port(self, address: str) -> int:
        """A port of this machine that was free just now."""
        with socket.socket() as probe:
            probe.bind((address, 0))
            found: int = probe.getsockname()[1]
            return found

    async def live(self, order: Order) -> Ending:
        """Start the process and return once nothing of it is left."""
        command = [order.python or sys.executable, *order.arguments]
        # Ray has set which devices this actor may see: the worker sees the same.
        self._process = spawn(command, {**os.environ, **order.variables}, Path(order.log))
        self._reaper.watch(self._process)
        reason = await self._process.exited
        await self._process.swept
        self._reaper.close()
        return Ending(reason, self._process.tail())

    async def end(self, kill: bool) -> None:
        """Ask the process to end, or end it now."""
        if self._process is not None:
            (self._process.kill if kill else self._process.terminate)()
