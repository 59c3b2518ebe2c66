"""Where a worker listens: `unix:/path` or `tcp:host:port`."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from areal_core.workers.wire import Wire

Accept = Callable[[Wire], Awaitable[None]]
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""After 30 seconds of silence the kernel asks three times, 10 seconds apart, whether the other machine is there."""

HAS_UNIX = hasattr(socket, "AF_UNIX") and sys.platform != "win32"


def path_of(address: str) -> Path | None:
    """The socket's path; None for other schemes."""
    scheme, _, rest = address.partition(":")
    return Path(rest) if scheme == "unix" else None


async def connect(address: str) -> Wire:
    """A wire to whoever listens there; raises `OSError`."""
    loop = asyncio.get_running_loop()
    if (path := path_of(address)) is not None:
        return (await loop.create_unix_connection(Wire, str(path)))[1]
    transport, wire = await loop.create_connection(Wire, *_host_and_port(address))
    _keep_alive(transport.get_extra_info("socket"))
    return wire


class Listener:
    """Accepts wires at an address; each is given to `accept` in a task of its own."""

    def __init__(self, accept: Accept) -> None:
        self._accept = accept
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._path: Path | None = None
        self.address = ""

    async def bind(self, address: str) -> None:
        """Take `unix:/path` (replacing what a dead process left there) or `tcp:host:port` (0: a free one)."""
        loop = asyncio.get_running_loop()
        if (path := path_of(address)) is not None:
            self._server = await loop.create_unix_server(self._wire, str(path))
            self._path, self.address = path, address
            return
        self._server = await loop.create_server(self._wire, *_host_and_port(address))
        for server in self._server.sockets:
            _keep_alive(server)  # what it accepts inherits it
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = f"tcp:{host}:{port}"

    async def close(self) -> None:
        """Accept no more, and leave no socket."""
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _wire(self) -> Wire:
        return Wire(self._opened)

    def _opened(self, wire: Wire) -> None:
        async def accept() -> None:
            await self._accept(wire)

        task = asyncio.create_task(accept())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _keep_alive(wired: socket.socket) -> None:
    """Have the wire end, with nothing to send, too, once the other machine is gone: nobody closes it there."""
    wired.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEP_ALIVE.items():
        if hasattr(socket, option):  # not everywhere
            wired.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    return host, int(port)
