"""N ranks behind one handle: called together, failing together, restarted as a unit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from areal_core.contexts import WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.protocols import Executor, Worker

Specs = Callable[[], Sequence[WorkerSpec]]
"""The ranks of a life of the group, which needs a rendezvous that no other had, in an earlier run of it neither."""

SETTLE = 5.0
"""Seconds that the other ranks get to return once one has failed; one that waits for it in a collective never does."""


class WorkerGroup:
    """A process group as one worker. Calls go to every rank.

    A call that has not returned after `timeout` seconds, where it names no other, is taken for a
    deadlock: the group counts as hung. Once `broken`, of `fault`, it serves no more until `restart`.
    """

    def __init__(self, name: str, executor: Executor, specs: Specs, timeout: float | None = None) -> None:
        self.name = name
        self._executor, self._specs, self.timeout = executor, specs, timeout
        self.fault = ""
        self.broken = False
        self.ranks: tuple[Worker, ...] = ()

    async def start(self) -> None:
        """Start every rank, or none.

        Raises:
            WorkerLost: a rank did not come up; the others are killed.

        """
        self.broken, self.fault = False, ""
        started = await asyncio.gather(*map(self._executor.start, self._specs()), return_exceptions=True)
        self.ranks = tuple(rank for rank in started if not isinstance(rank, BaseException))
        for failure in started:
            if isinstance(failure, BaseException):
                self.kill(getattr(failure, "reason", str(failure)))
                raise failure

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
            WorkerLost: a rank was lost, or did not return in time; the group is killed.
            What the first rank to fail raised. When others cannot return any more, the group is killed.

        """
        return await self.call_each(method, [args] * len(self.ranks), timeout)

    async def call_each(self, method: str, args: Sequence[Sequence[Any]], timeout: float | None = None) -> list[Any]:
        """The same with arguments for each rank."""
        limit = self.timeout if timeout is None else timeout
        calls = [rank.call(method, *own, timeout=limit) for rank, own in zip(self.ranks, args, strict=True)]
        try:
            return await self._together(calls)
        except TimeoutError as error:
            self.kill(f"hung: {method} did not return within {limit:g} s")
            raise WorkerLost(self.name, self.fault) from error

    async def lost(self) -> str:
        """The reason, once any rank is gone; the others are then killed."""
        waits = [asyncio.create_task(rank.lost()) for rank in self.ranks]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            first = next(rank for rank, wait in zip(self.ranks, waits, strict=True) if wait.done())
            self.kill(_of_rank(first, await first.lost()))
            return self.fault
        finally:
            await _cancel(waits)

    async def stop(self, grace: float) -> None:
        """Ask every rank to end, then make it."""
        await asyncio.gather(*(rank.stop(grace) for rank in self.ranks))

    def kill(self, fault: str = "killed") -> None:
        """End every rank now; the first `fault` is what the group is said to be lost of."""
        self.broken, self.fault = True, self.fault or fault
        for rank in self.ranks:
            rank.kill()

    def end(self, rank: Worker, fault: str) -> None:
        """Kill the group because of what is wrong with `rank`."""
        if rank in self.ranks:
            self.kill(_of_rank(rank, fault))

    async def _together(self, calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        tasks = [asyncio.create_task(call) for call in calls]
        try:
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            failed = next((task for task in tasks if task in done and task.exception()), None)
            if failed is None:
                return [task.result() for task in tasks]
            error = await self._judge(failed, tasks, pending)
            raise error
        finally:
            await _cancel(tasks)

    async def _judge(
        self, failed: asyncio.Task[Any], tasks: Sequence[asyncio.Task[Any]], pending: set[asyncio.Task[Any]]
    ) -> BaseException:
        """What is raised when a rank's call `failed`: the loss of one, if there was any, else its error.

        A rank whose peer is gone fails in a collective, often before that end is noticed.
        """
        returned = isinstance(failed.exception(), WorkerLost | TimeoutError) or await _settled(pending)
        lost = next((task for task in tasks if isinstance(_error(task), WorkerLost)), None)
        error = _error(lost or failed)
        assert error is not None
        if lost is not None or not returned:
            self.kill(_of_rank(self.ranks[tasks.index(lost or failed)], getattr(error, "reason", str(error))))
        return error if lost is None else WorkerLost(self.name, self.fault)


def _error(task: asyncio.Task[Any]) -> BaseException | None:
    return task.exception() if task.done() else None


def _of_rank(rank: Worker, reason: str) -> str:
    """A group's reason from a rank's; that of a hung one begins with `hung:`."""
    hung = "hung: "
    return f"{hung}{rank.name}: {reason.removeprefix(hung)}" if reason.startswith(hung) else f"{rank.name}: {reason}"


async def _settled(calls: set[asyncio.Task[Any]]) -> bool:
    return not calls or not (await asyncio.wait(calls, timeout=SETTLE))[1]


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
