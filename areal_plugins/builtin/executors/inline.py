"""Workers in this process, on this loop: nothing is copied, and the order of events depends on the seed alone.

Handles behave as those of processes do: what a service raises arrives as `RemoteError`, a killed
worker fails every call under way with `WorkerLost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import AsyncExitStack, aclosing, suppress
from itertools import count
from typing import Any, TypeVar

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.workers.build import import_files
from areal_core.workers.faults import as_remote
from areal_core.workers.service import Service, make_service, methods_of

T = TypeVar("T")
_END = object()

GRACE = 5.0
"""Seconds that closing a service may take."""


def make(_options: object, context: ExecutorContext) -> InlineExecutor:
    """The factory of `inline`."""
    return InlineExecutor(context)


class InlineExecutor:
    """Starts workers by making their services; addresses are names in a register."""

    def __init__(self, context: ExecutorContext) -> None:
        self._context = context
        self._workers: dict[str, InlineWorker] = {}
        self._numbers = count()

    async def start(self, spec: WorkerSpec) -> InlineWorker:
        """Make the service of the role; nothing runs until it is called."""
        import_files(self._context.files)
        address = f"inline:{spec.name}#{next(self._numbers)}"
        worker = InlineWorker(spec, address, _Host(spec.name, make_service(spec.role, self.dial, threaded=False)))
        self._workers[address] = worker
        return worker

    async def dial(self, address: str) -> InlinePeer:
        """A link of its own to the worker at `address`."""
        if address not in self._workers:
            raise WorkerLost(address, "no worker has this address")
        return self._workers[address].link()

    async def close(self) -> None:
        """Close every service, those of killed workers too; the last one that was started first."""
        async with AsyncExitStack() as owned:
            for worker in self._workers.values():
                owned.push_async_callback(worker.stop, GRACE)


class _Host:
    """A service and the calls that run in it; `gone` resolves to the reason of its end."""

    def __init__(self, name: str, service: Service) -> None:
        self.name, self.service = name, service
        self.gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._running: dict[asyncio.Task[Any], None] = {}  # in order, so that a kill is deterministic
        self._closed = False

    def end(self, reason: str) -> None:
        if not self.gone.done():
            self.gone.set_result(reason)
        for task in tuple(self._running):
            task.cancel()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self.service.close()

    def method(self, name: str, streams: bool) -> Any:
        method = methods_of(type(self.service)).get(name)
        if method is None or method.streams is not streams:
            kind = "stream" if streams else "method"
            raise RemoteError(self.name, name, Remote("AttributeError", f"there is no such {kind}"))
        return getattr(self.service, name)

    async def run(self, method: str, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` in a task of its own, so that the caller and the worker can each end it."""
        if self.gone.done():
            work.close()
            raise WorkerLost(self.name, self.gone.result())
        task = asyncio.create_task(work)
        self._running[task] = None
        try:
            return await task
        except asyncio.CancelledError as error:
            if _cancelled():
                raise
            if self.gone.done():
                raise WorkerLost(self.name, self.gone.result()) from None
            raise RemoteError(self.name, method, as_remote(error)) from error  # its own doing, not the caller's
        except Exception as error:
            raise RemoteError(self.name, method, as_remote(error)) from error
        finally:
            del self._running[task]


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class InlinePeer:
    """A link to a service in this process."""

    def __init__(self, host: _Host) -> None:
        self.name, self._host, self._open = host.name, host, True

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """The method's result."""
        self._check()
        work = self._host.method(method, streams=False)
        async with asyncio.timeout(timeout):
            return await self._host.run(method, work(*args))

    async def stream(self, method: str, *args: Any) -> AsyncGenerator[Any, None]:
        """What the method yields."""
        self._check()
        async with aclosing(self._host.method(method, streams=True)(*args)) as items:
            while (item := await self._host.run(method, _next(items))) is not _END:
                yield item

    async def close(self) -> None:
        """End the link."""
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise WorkerLost(self.name, "this end closed the link")


async def _next(items: AsyncIterator[Any]) -> Any:
    return await anext(items, _END)


class InlineWorker(InlinePeer):
    """The controller's handle."""

    pid: int | None = None

    def __init__(self, spec: WorkerSpec, address: str, host: _Host) -> None:
        super().__init__(host)
        self.spec, self.address = spec, address

    def link(self) -> InlinePeer:
        """Another link to the same service."""
        return InlinePeer(self._host)

    async def lost(self) -> str:
        """The reason, once it is gone."""
        return await asyncio.shield(self._host.gone)

    async def stop(self, grace: float) -> None:
        """Close the service, once, for `grace` seconds at most."""
        self._host.end("stopped")
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._host.close()

    def kill(self) -> None:
        """End it now: calls under way fail, and the service is never called again."""
        self._host.end("killed")
