"""What an engine worker offers: generation, and weights in two phases (prepare, then commit)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from attrs import frozen

from areal_core.contexts import EngineContext
from areal_core.data import Completion, EngineStats, GenerateRequest, WeightOffer, WeightVersion
from areal_core.errors import ComponentError, InputError
from areal_core.protocols import Engine, Transport, WeightSource
from areal_core.workers.build import build, title
from areal_core.workers.faults import blaming
from areal_core.workers.guard import Guard
from areal_core.workers.lane import Lane
from areal_core.workers.plans import EnginePlan, Health
from areal_core.workers.service import Dial
from areal_core.workers.transport import build_transport


@frozen
class _Live:
    name: str
    engine: Engine
    transport_name: str
    transport: Transport
    interruptible: bool


class EngineService:
    """One engine, and the engine's end of the weight transport."""

    def __init__(self, dial: Dial | None = None, threaded: bool = True) -> None:
        self._lane = Lane("transport", threaded)
        self._owned = AsyncExitStack()
        self._live: _Live | None = None
        self._version = WeightVersion()
        self._staged: dict[WeightVersion, WeightSource] = {}
        self._swap = asyncio.Lock()
        self._poison: str | None = None
        self._threaded = threaded
        self._guard: Guard | None = None

    async def setup(self, plan: EnginePlan) -> None:
        """Build the engine and serve the model as `plan.version`; once in a worker's life."""
        name, transport_name = title(plan.component), title(plan.transport.component)
        if self._live is not None:
            raise ComponentError(name, "setup", "the worker is set up already")
        transport = await self._lane.call(
            transport_name, "build", build_transport, plan.transport, "engine", plan.place
        )
        self._owned.push_async_callback(self._lane.call, transport_name, "close", transport.close)
        engine: Engine = await self._lane.call(name, "build", build, plan.component, _context(plan))
        self._owned.push_async_callback(engine.close)
        with blaming(name, "start"):
            await engine.start(plan.version)
        self._live = _Live(name, engine, transport_name, transport, plan.interruptible)
        self._version = plan.version
        host = self._threaded and plan.place.device == "cpu"
        self._guard = Guard(engine, plan.memory_limit, host, plan.max_concurrent)
        self._owned.callback(self._guard.close)
        self._lane.settle()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        """Completions as they end.

        An engine that raises, unless the request was wrong, is not asked again: it may be of no use any more.

        Raises:
            ComponentError: the engine raised, did so before, or its weights are unknown since a commit failed.
            InputError: the request is wrong.

        """
        live = self._sound("generate")
        with self._failing(), blaming(live.name, f"generate {request.id}"):
            completions = live.engine.generate(request)
            async with AsyncExitStack() as owned:
                if isinstance(completions, AsyncGenerator):
                    owned.push_async_callback(completions.aclose)
                async for completion in completions:
                    self._sound("generate")
                    yield completion

    async def abort(self, ids: list[str] | None) -> None:
        """End these requests, all for None."""
        live = self._ready("abort")
        with blaming(live.name, "abort"):
            await live.engine.abort(ids)

    async def partial(self, request: str) -> list[Completion]:
        """What was drawn so far of a request's completions that are still being drawn.

        Nothing of an engine that cannot tell, whose weights are unknown, or that keeps no answer over an update.
        """
        live = self._ready("partial")
        if self._poison is not None or not live.interruptible or not hasattr(live.engine, "partial"):
            return []
        with blaming(live.name, f"partial {request}"):
            return list(live.engine.partial(request))

    async def prepare(self, offer: WeightOffer) -> None:
        """Fetch and verify what `offer` names. The engine goes on generating and is not changed."""
        live = self._ready("prepare")
        source = await self._lane.call(live.transport_name, "receive", live.transport.receive, offer)
        self._staged[offer.version] = source

    async def commit(self, version: WeightVersion) -> None:
        """Swap in what was prepared; generation is held for the swap alone and goes on afterwards.

        When the swap fails nobody knows what the weights are: running completions are aborted and
        further ones refused, until a later commit succeeds or the worker is restarted.
        """
        live = self._ready("commit")
        async with self._swap:
            source = self._staged.pop(version, None)
            if source is None:
                raise ComponentError(live.name, f"commit {version}", "this version was not prepared here")
            try:
                await self._load(live, source, version)
            finally:
                await self._release(live, version)

    async def discard(self, version: WeightVersion) -> None:
        """Forget what was prepared, and what was fetched of it where that failed or was given up."""
        self._staged.pop(version, None)
        if self._live is not None:
            await self._release(self._live, version)

    async def stats(self) -> EngineStats:
        """The engine's counters."""
        live = self._ready("stats")
        with blaming(live.name, "stats"):
            return live.engine.stats()

    async def version(self) -> WeightVersion:
        """The version that new tokens carry; raises `ComponentError` when the engine can draw none any more."""
        self._sound("version")
        return self._version

    async def health(self) -> Health:
        """How it is, and what there is to say of it since the last time."""
        return Health() if self._guard is None else self._guard.report()

    async def close(self) -> None:
        """Close the engine, then the transport."""
        self._live = None
        await self._owned.aclose()
        self._lane.close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """What the block raises is kept as the engine's failure, unless the request was wrong."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            self._poison = self._poison or f"it failed before: {error}"
            raise

    async def _load(self, live: _Live, source: WeightSource, version: WeightVersion) -> None:
        with blaming(live.name, f"commit {version}"):
            try:
                await live.engine.pause(live.interruptible)
                await self._replace(live.engine, source, version)
            finally:
                await live.engine.resume()

    async def _replace(self, engine: Engine, source: WeightSource, version: WeightVersion) -> None:
        try:
            await engine.load_weights(source, version)
        except BaseException as error:
            self._poison = f"its weights are unknown since loading {version} failed: {error!r}"
            await engine.abort(None)
            raise
        self._version, self._poison = version, None

    async def _release(self, live: _Live, version: WeightVersion) -> None:
        await self._lane.call(live.transport_name, "release", live.transport.release, version)

    def _ready(self, operation: str) -> _Live:
        if self._live is None:
            raise ComponentError("engine", operation, "the worker was not set up")
        return self._live

    def _sound(self, operation: str) -> _Live:
        live = self._ready(operation)
        if self._poison is not None:
            raise ComponentError(live.name, operation, self._poison)
        return live


def _context(plan: EnginePlan) -> EngineContext:
    return EngineContext(
        model=Path(plan.model),
        dtype=plan.dtype,
        place=plan.place,
        seed=plan.seed,
        max_concurrent=plan.max_concurrent,
        interruptible=plan.interruptible,
        work=Path(plan.work),
    )
