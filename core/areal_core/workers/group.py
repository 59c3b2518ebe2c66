"""N ranks behind one handle: called together, failing together, restarted as a unit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from areal_core.contexts import WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.protocols import Executor, Worker

Specs = Callable[[int], Sequence[WorkerSpec]]
"""The ranks of the group's n-th life, counted from 0; each life needs a rendezvous of its own."""

SETTLE = 5.0
"""Seconds that the other ranks get to return once one has failed; one that waits for it in a collective never does."""


class WorkerGroup:
    """A process group as one worker. Calls go to every rank, streams to rank 0."""

    def __init__(self, name: str, executor: Executor, specs: Specs) -> None:
        self.name = name
        self._executor, self._specs = executor, specs
        self._lives = 0
        self.ranks: tuple[Worker, ...] = ()
        # Rank 0 speaks for the group.
        self.spec: WorkerSpec
        self.address = ""
        self.pid: int | None = None

    async def start(self) -> None:
        """Start every rank, or none.

        Raises:
            WorkerLost: a rank did not come up; the others are killed.

        """
        specs, self._lives = self._specs(self._lives), self._lives + 1
        started = await asyncio.gather(*map(self._executor.start, specs), return_exceptions=True)
        self.ranks = tuple(rank for rank in started if not isinstance(rank, BaseException))
        for failure in started:
            if isinstance(failure, BaseException):
                self.kill()
                raise failure
        first = self.ranks[0]
        self.spec, self.address, self.pid = first.spec, first.address, first.pid

    async def restart(self, grace: float) -> None:
        """End what is left of the ranks and start the group anew."""
        await self.stop(grace)
        await self.start()

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """Call every rank; rank 0's result."""
        return (await self.call_all(method, *args, timeout=timeout))[0]

    async def call_all(self, method: str, *args: Any, timeout: float | None = None) -> list[Any]:
        """Call every rank; all results, by rank.

        Raises:
            What the first rank to fail raised. When others cannot return any more, the group is killed.

        """
        calls = [rank.call(method, *args, timeout=timeout) for rank in self.ranks]
        return await self._together(calls)

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        """What rank 0 yields."""
        return self.ranks[0].stream(method, *args)

    async def lost(self) -> str:
        """The reason, once any rank is gone; the others are then killed."""
        waits = [asyncio.create_task(rank.lost()) for rank in self.ranks]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            first = next(rank for rank, wait in zip(self.ranks, waits, strict=True) if wait.done())
            self.kill()
            return f"{first.name}: {await first.lost()}"
        finally:
            await _cancel(waits)

    async def stop(self, grace: float) -> None:
        """Ask every rank to end, then make it."""
        await asyncio.gather(*(rank.stop(grace) for rank in self.ranks))

    def kill(self) -> None:
        """End every rank now."""
        for rank in self.ranks:
            rank.kill()

    async def close(self) -> None:
        """End the links."""
        await asyncio.gather(*(rank.close() for rank in self.ranks))

    async def _together(self, calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        tasks = [asyncio.create_task(call) for call in calls]
        try:
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            errors = [error for task in tasks if task in done and (error := task.exception()) is not None]
            if not errors:
                return [task.result() for task in tasks]
            if isinstance(errors[0], WorkerLost) or not await _settled(pending):
                self.kill()
            raise errors[0]
        finally:
            await _cancel(tasks)


async def _settled(calls: set[asyncio.Task[Any]]) -> bool:
    return not calls or not (await asyncio.wait(calls, timeout=SETTLE))[1]


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
