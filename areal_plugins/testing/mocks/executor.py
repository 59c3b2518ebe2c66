"""Workers in this process whose calls take time on the loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.errors import WorkerLost
from areal_plugins.builtin.executors.inline import InlineExecutor, InlineWorker
from areal_plugins.testing.mocks import ExecutorOptions


def make(options: ExecutorOptions, context: ExecutorContext) -> MockExecutor:
    """The factory."""
    return MockExecutor(options, context)


class MockExecutor:
    """An `inline` executor with delays. `workers` are all that it ever started, to be killed by tests."""

    def __init__(self, options: ExecutorOptions, context: ExecutorContext) -> None:
        self._inline = InlineExecutor(context)
        self._seconds = options.seconds
        self.workers: list[PacedWorker] = []

    async def start(self, spec: WorkerSpec) -> PacedWorker:
        await asyncio.sleep(self._seconds.get("start", 0.0))
        worker = PacedWorker(await self._inline.start(spec), self._seconds)
        self.workers.append(worker)
        return worker

    async def close(self) -> None:
        await self._inline.close()


class PacedWorker:
    """A handle whose calls wait before they are made."""

    pid: int | None = None

    def __init__(self, inner: InlineWorker, seconds: Mapping[str, float]) -> None:
        self._inner, self._seconds = inner, seconds
        self.spec, self.name, self.address = inner.spec, inner.name, inner.address

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        if seconds := self._seconds.get(method, 0.0):
            await self._spend(seconds)
        return await self._inner.call(method, *args, timeout=timeout)

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        return self._inner.stream(method, *args)

    async def lost(self) -> str:
        return await self._inner.lost()

    async def stop(self, grace: float) -> None:
        await self._inner.stop(grace)

    async def close(self) -> None:
        await self._inner.close()

    def kill(self) -> None:
        self._inner.kill()

    async def _spend(self, seconds: float) -> None:
        """Let time pass; raises `WorkerLost` when the worker ends meanwhile."""
        gone = asyncio.ensure_future(self._inner.lost())
        try:
            await asyncio.wait({gone}, timeout=seconds)
            if gone.done():
                raise WorkerLost(self.name, gone.result())
        finally:
            gone.cancel()
