"""The executor of a simulation: workers in this process, at the other end of wires that can go wrong.

What a handle may deliver is what those of processes deliver: a call is answered once at most, since answers
are matched to calls and one to a call that was given up is dropped; once a worker is lost every call under way
fails, and so does every later one. But a worker that is lost may not be dead: a *zombie* goes on with what it
was told, and what it does to files, engines and weights is real. Its peers' connections stay open, as those to a
machine that is out of reach do. Answers that come twice reach nobody but the readers of streams.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing
from contextvars import ContextVar
from math import inf, nan
from typing import Any, Protocol, TypeVar

from attrs import evolve

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.data import WeightVersion
from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_plugins import ExecutorCapabilities, ExecutorDescriptor, hookimpl
from areal_plugins.builtin.executors.inline import InlineExecutor, InlinePeer, InlineWorker
from areal_plugins.testing.sim.injuries import TOLD
from areal_plugins.testing.sim.schedule import Strike

T = TypeVar("T")


class Fate(Protocol):
    """Decides what happens on the wires, and is told of it."""

    def strike(self, method: str) -> Strike | None:
        """What goes wrong with the next call of `method`."""
        ...

    def seconds(self, method: str) -> float:
        """What a call of `method` takes on its way."""
        ...

    def hired(self, worker: SimWorker) -> None:
        """A worker was started."""
        ...

    def hurt(self, worker: str, how: str, method: str = "") -> None:
        """Something was done to a worker, or a call of `method` was."""
        ...

    def did(self, worker: SimWorker, method: str, args: tuple[Any, ...], result: Any) -> None:
        """A worker has done what it was asked for; whether anybody will hear of it is open."""
        ...


fate: ContextVar[Fate] = ContextVar("fate")
"""Whoever decides in the run that is being made."""


def make(_options: object, context: ExecutorContext) -> SimExecutor:
    """The factory."""
    return SimExecutor(context, fate.get())


class Line:
    """The connection to a worker: everything on it waits while the worker is `silent`."""

    def __init__(self) -> None:
        self.silent = False
        self.breaks = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def passes(self, name: str, breaks: int | None = None) -> None:
        """Return once something can pass; raises `WorkerLost` if the line has broken other than `breaks` times."""
        while self.silent or (breaks is not None and breaks != self.breaks):
            if breaks is not None and breaks != self.breaks:
                raise WorkerLost(name, "the connection broke")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def speak(self) -> None:
        """The worker is heard again, by whoever still listens."""
        self.silent = False
        self._look_again()

    def cut(self) -> None:
        """Whoever listens gives up."""
        self.breaks += 1
        self._look_again()

    def _look_again(self) -> None:
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)


class SimExecutor(InlineExecutor):
    """`inline`, with wires between."""

    def __init__(self, context: ExecutorContext, decides: Fate) -> None:
        super().__init__(context)
        self._fate = decides
        self.hired: dict[str, SimWorker] = {}

    async def start(self, spec: WorkerSpec) -> SimWorker:  # type: ignore[override]  # it wraps the parent's
        struck = self._fate.strike("start")
        await asyncio.sleep(self._fate.seconds("start") + (struck.seconds if struck else 0.0))
        if struck is not None and struck.kind == "raise":
            self._fate.hurt(spec.name, "did not start", "start")
            raise WorkerLost(spec.name, "injected: it did not start")
        worker = SimWorker(await super().start(spec), self._fate, self._bury)
        self.hired[worker.address] = worker
        self._fate.hired(worker)
        return worker

    async def dial(self, address: str) -> SimPeer:  # type: ignore[override]  # it wraps the parent's
        if address not in self.hired:
            raise WorkerLost(address, "no worker has this address")
        worker = self.hired[address]
        await worker.line.passes(worker.name)
        return SimPeer(await super().dial(address), worker, self._fate)

    def _bury(self, worker: SimWorker) -> None:
        """Free all that a dead worker held, as the end of a process does. A trainer's part may be its successor's."""
        self.hired.pop(worker.address, None)
        buried = self._workers.pop(worker.address, None)
        if buried is not None and worker.spec.role != "trainer":
            asyncio.get_running_loop().create_task(buried._host.close())


class SimWorker:
    """The controller's handle. `serves` is the version that an engine has, `offered` those that it was given.

    `uses` are the engines, by address, of the groups for which the controller waits, `lost_at` when it was given up.
    """

    pid: int | None = None

    def __init__(self, inner: InlineWorker, decides: Fate, buried: Any) -> None:
        self.inner, self._fate = inner, decides
        self.spec, self.name, self.address = inner.spec, inner.name, inner.address
        self.line = Line()
        self.slow = 1.0
        self.serves: WeightVersion | None = None
        self.offered: set[WeightVersion] = set()
        self.served: set[int] = set()
        self.uses: Counter[str] = Counter()
        self.lost_at = inf
        self._out_of_reach = False
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        inner._host.gone.add_done_callback(lambda gone: self._gone(gone.result(), buried))

    @property
    def alive(self) -> bool:
        """Whether the controller may still hear of it."""
        return not self._lost.done()

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        engine = args[0].engine if method == "run_group" else ""
        self.uses[engine] += 1
        try:
            async with asyncio.timeout(timeout):
                return await self._answered(self._perform(method, args))
        finally:
            self.uses[engine] -= 1

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        return self.inner.stream(method, *args)

    async def lost(self) -> str:
        return await asyncio.shield(self._lost)

    async def stop(self, grace: float) -> None:
        self.line.speak()
        await self.inner.stop(grace)

    async def close(self) -> None:
        await self.inner.close()

    def kill(self) -> None:
        if self._out_of_reach:
            self.give_up("killed")
        else:
            self.inner.kill()

    # What the schedule does to it.

    def die(self, reason: str) -> None:
        """End, now."""
        self._fate.hurt(self.name, reason)
        self.inner._host.end(reason)

    def fall_silent(self, out_of_reach: bool) -> None:
        """Answer nothing; with `out_of_reach` nobody can kill it either."""
        self._fate.hurt(self.name, "fell silent")
        self.line.silent, self._out_of_reach = True, out_of_reach

    def give_up(self, reason: str, kill: bool = False) -> None:
        """The controller waits for it no more: what it may still say is not heard."""
        self._lose(reason)
        if kill:
            self.inner.kill()

    def wake(self) -> None:
        """Go on with everything that it was told."""
        self.line.speak()

    def recover(self) -> None:
        """Be as fast as before."""
        self.slow = 1.0

    def _lose(self, reason: str) -> None:
        if not self._lost.done():
            self._lost.set_result(reason)
            self.lost_at = asyncio.get_running_loop().time()

    def _gone(self, reason: str, buried: Any) -> None:
        self._lose(reason)
        self.line.cut()
        self.line.speak()
        buried(self)

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, which goes on where a worker that is lost goes on."""
        if self._lost.done():
            work.close()
            raise WorkerLost(self.name, self._lost.result())
        task = asyncio.ensure_future(work)
        try:
            either: tuple[asyncio.Future[Any], ...] = (task, self._lost)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise WorkerLost(self.name, self._lost.result())
            return task.result()
        finally:
            task.add_done_callback(_unheard)
            if not self._out_of_reach:
                task.cancel()

    async def _perform(self, method: str, args: tuple[Any, ...]) -> Any:
        struck = self._fate.strike(method)
        kind = struck.kind if struck else ""
        if seconds := self._fate.seconds(method) * self.slow:
            await asyncio.sleep(seconds)
        await self.line.passes(self.name)
        self._fail(method, kind, "raise", "die")
        try:
            result = await self.inner.call(method, *args)
        except RemoteError as error:
            if TOLD in error.error.text:  # else it refuses what it was given
                self._fate.hurt(self.name, f"{method} fails: {error.error.text}", method)
            raise
        self._fate.did(self, method, args, result)
        self._fail(method, kind, "raise-after", "die-after")
        if kind == "explode":
            result = evolve(result, metrics={**result.metrics, "loss": nan, "grad_norm": inf, "skipped": 1.0})
        if kind == "late":
            assert struck is not None
            self._fate.hurt(self.name, f"{method} is late", "" if method == "run_group" else "late")
            await asyncio.sleep(struck.seconds)
        await self.line.passes(self.name)
        return result

    def _fail(self, method: str, kind: str, raises: str, dies: str) -> None:
        if kind == raises:
            self._fate.hurt(self.name, f"{method} raises", method)
            raise RemoteError(self.name, method, Remote("RuntimeError", f"injected: {method} {kind}"))
        if kind == dies:
            self.die(f"injected: {dies} in {method}")
            raise WorkerLost(self.name, f"injected: {dies} in {method}")


class SimPeer:
    """A rollout worker's link to an engine."""

    def __init__(self, peer: InlinePeer, worker: SimWorker, decides: Fate) -> None:
        self.name, self._peer, self._worker, self._fate = peer.name, peer, worker, decides
        self._breaks = worker.line.breaks

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        await self._worker.line.passes(self.name, self._breaks)
        return await self._peer.call(method, *args, timeout=timeout)

    async def stream(self, method: str, *args: Any) -> AsyncGenerator[Any, None]:
        struck = self._fate.strike(method)
        kind = struck.kind if struck else ""
        await self._pass(self._fate.seconds(method))
        self._worker._fail(method, kind, "raise", "die")
        async with aclosing(self._peer.stream(method, *args)) as items:
            async for item in items:
                await self._pass(struck.seconds if struck and kind == "late" else 0.0)
                yield item
                if kind == "twice":
                    yield item

    async def close(self) -> None:
        await self._peer.close()

    async def _pass(self, seconds: float) -> None:
        if seconds:
            await asyncio.sleep(seconds * self._worker.slow)
        await self._worker.line.passes(self.name, self._breaks)


def _unheard(task: asyncio.Task[Any]) -> None:
    """What a call that was given up came to."""
    if not task.cancelled():
        task.exception()


EXECUTOR = ExecutorDescriptor(
    name="sim",
    summary="workers of a simulation, which fail as its schedule says",
    factory=f"{__name__}:make",
    automatic=False,
    capabilities=ExecutorCapabilities(processes=True),
)


@hookimpl
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    return (EXECUTOR,)
