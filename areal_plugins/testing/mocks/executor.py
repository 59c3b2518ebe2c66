"""Workers in this process whose calls take time on the loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_plugins.builtin.executors.inline import InlineExecutor, InlineWorker
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import Script

T = TypeVar("T")


def make(options: Script, context: ExecutorContext) -> MockExecutor:
    """The factory."""
    return MockExecutor(options, context)


class MockExecutor:
    """An `inline` executor with delays and faults. `workers` are all that it ever started, to be killed by tests."""

    def __init__(self, options: Script, context: ExecutorContext) -> None:
        self._inline = InlineExecutor(context)
        self._conduct = Conduct(options)
        self.workers: list[PacedWorker] = []

    async def start(self, spec: WorkerSpec) -> PacedWorker:
        try:
            await self._conduct.act("start")
        except RuntimeError as error:
            raise WorkerLost(spec.name, str(error)) from error
        worker = PacedWorker(await self._inline.start(spec), self._conduct)
        self.workers.append(worker)
        return worker

    async def close(self) -> None:
        await self._inline.close()


class PacedWorker:
    """A handle whose calls wait before they are made, and can fail as if they had failed over there."""

    pid: int | None = None

    def __init__(self, inner: InlineWorker, conduct: Conduct) -> None:
        self._inner, self._conduct = inner, conduct
        self.spec, self.name, self.address = inner.spec, inner.name, inner.address

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        async with asyncio.timeout(timeout):
            if self._conduct.scripted(method):
                await self._while_it_lives(self._act(method))
            return await self._inner.call(method, *args)

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

    async def _act(self, method: str) -> None:
        try:
            await self._conduct.act(method)
        except RuntimeError as error:
            raise RemoteError(self.name, method, Remote("RuntimeError", str(error))) from error

    async def _while_it_lives(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; raises `WorkerLost` when the worker ends first."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(self._inner.lost())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise WorkerLost(self.name, gone.result())
            return task.result()
        finally:
            task.cancel()
            gone.cancel()
