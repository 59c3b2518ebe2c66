"""The engine as its worker sees it: requests in, completions out, on one event loop.

A step runs on the loop and gives it back after each, so requests join and leave between steps and
the order of events depends on the order of calls alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any

import torch
from attrs import frozen

from areal_core.contexts import EngineContext
from areal_core.data import Completion, EngineStats, GenerateRequest, WeightVersion
from areal_core.protocols import WeightSource
from areal_plugins import ComponentError, InputError, TransportError
from areal_plugins.builtin import device_memory
from areal_plugins.builtin.dtypes import resolve_dtype
from areal_plugins.builtin.engine import TorchEngineOptions, loading, probe
from areal_plugins.builtin.engine.core import Core
from areal_plugins.builtin.engine.intake import Intake
from areal_plugins.builtin.engine.kv_cache import KVCache, free_bytes
from areal_plugins.builtin.engine.runner import Runner
from areal_plugins.builtin.engine.scheduler import Scheduler
from areal_plugins.builtin.engine.weights import Parameters, read_directory

_NAME = "engine/torch"

_TURNS = 4
"""Turns of the event loop between two steps: a call takes about as many from its message to its answer."""

_YIELD_BYTES = 64 << 20
"""Weights copied between two turns of the event loop."""


@frozen(eq=False)
class _Live:
    """What exists from `start` to `close`."""

    core: Core
    intake: Intake
    parameters: Parameters
    loop: asyncio.Task[None]

    @property
    def scheduler(self) -> Scheduler:
        return self.core.scheduler


class TorchEngine:
    """Continuous batching over a transformers model; see `protocols.Engine`."""

    def __init__(self, options: TorchEngineOptions, context: EngineContext) -> None:
        self._options, self._context = options, context
        self._started: _Live | None = None
        self._requests: dict[str, asyncio.Queue[Completion | None]] = {}
        self._failure: Exception | None = None
        self._paused = False
        self._wake, self._idle = asyncio.Event(), asyncio.Event()

    # --- life --------------------------------------------------------------------------------------

    async def start(self, version: WeightVersion) -> None:
        place, directory = self._context.place, self._context.model
        torch.set_num_threads(place.threads)
        device, dtype = torch.device(place.device), resolve_dtype(self._context.dtype, place.device)
        model = await asyncio.to_thread(loading.load_model, directory, dtype, device)
        longest = loading.longest_sequence(model, self._options.max_model_len, str(directory))
        runner = Runner(model, KVCache(dtype, device), longest)
        probe.check(runner, str(directory))
        kv_tokens = self._kv_tokens(longest, runner.cache)
        text = loading.Text(loading.load_tokenizer(directory))
        rows, chunk = self._context.max_concurrent, self._options.prefill_tokens
        core = Core(runner, Scheduler(runner.cache, rows, kv_tokens, chunk, text.decode), version)
        vocabulary = model.config.get_text_config().vocab_size
        intake = Intake(text, loading.end_ids(model, text.tokenizer), vocabulary, min(longest, kv_tokens))
        loop = asyncio.create_task(self._run(core), name=_NAME)
        self._started = _Live(core, intake, Parameters(model), loop)

    def _kv_tokens(self, longest: int, cache: KVCache) -> int:
        if self._options.kv_tokens is not None:
            return self._options.kv_tokens
        free = free_bytes(cache.device)
        wanted = self._context.max_concurrent * longest
        return wanted if free is None else max(2, min(wanted, free // 2 // cache.token_bytes))

    async def close(self) -> None:
        if self._started is None:
            return
        self._started.loop.cancel()
        await asyncio.gather(self._started.loop, return_exceptions=True)
        self._fail(ComponentError(_NAME, "generate", "the engine was closed"))
        self._started = None

    def _live(self) -> _Live:
        if self._started is None:
            raise ComponentError(_NAME, "call", "the engine is not started")
        return self._started

    # --- requests ----------------------------------------------------------------------------------

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        live, outcomes = self._live(), asyncio.Queue[Completion | None]()
        self._raise_failure()
        if request.id in self._requests:
            raise InputError(f"request {request.id}", "a request of this id is running")
        live.scheduler.submit(live.intake.group(request, outcomes.put_nowait))
        self._requests[request.id] = outcomes
        self._wake.set()
        missing = request.n
        try:
            while missing:
                outcome = await outcomes.get()
                if outcome is None:
                    self._raise_failure()
                else:
                    missing -= 1
                    yield outcome
        finally:
            del self._requests[request.id]
            if missing:
                live.scheduler.abort({request.id})

    async def abort(self, ids: Sequence[str] | None = None) -> None:
        self._live().scheduler.abort(None if ids is None else set(ids))

    def partial(self, request: str) -> list[Completion]:
        return list(self._live().scheduler.partial(request))

    def stats(self) -> EngineStats:
        live = self._live()
        core, scheduler = live.core, live.scheduler
        counters = core.generated_tokens, core.prefilled_tokens, core.busy_seconds
        return EngineStats(*counters, scheduler.running, scheduler.waiting)

    def memory(self) -> float | None:
        return device_memory.share(torch.device(self._context.place.device))

    def relieve(self) -> None:
        device_memory.empty_cache(torch.device(self._context.place.device))

    def resize(self, max_concurrent: int) -> None:
        self._live().scheduler.widest = max_concurrent
        self._wake.set()

    # --- the loop ----------------------------------------------------------------------------------

    async def _run(self, core: Core) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while not self._paused and core.step():
                    for _ in range(_TURNS):
                        await asyncio.sleep(0)
            except Exception as error:  # whatever it is, every caller gets it, now and later
                self._fail(error)
            self._idle.set()

    def _fail(self, error: Exception) -> None:
        """End all that runs or waits with `error`, and refuse what comes, until new weights are whole."""
        self._failure = error
        self._live().scheduler.clear()
        for outcomes in self._requests.values():
            outcomes.put_nowait(None)

    def _raise_failure(self) -> None:
        if isinstance(self._failure, ComponentError):
            raise ComponentError(_NAME, "generate", self._failure.cause) from self._failure
        if self._failure is not None:
            cause = f"{type(self._failure).__name__}: {self._failure}"
            raise ComponentError(_NAME, "generate", cause) from self._failure

    # --- weights -----------------------------------------------------------------------------------

    async def pause(self, keep: bool) -> None:
        if not keep:
            self._live().scheduler.admitting = False
            self._paused = False
            self._idle.clear()
            self._wake.set()
            await self._idle.wait()
        self._paused = True

    async def resume(self) -> None:
        self._live().scheduler.admitting = True
        self._paused = False
        self._wake.set()

    async def load_weights(self, source: WeightSource, version: WeightVersion) -> None:
        live = self._live()
        if not self._paused:
            raise ComponentError(_NAME, "load_weights", "the engine is not paused")
        await self._replace(live, await self._tensors(live, source), version)
        self._failure = None
        live.core.runner.new_weights()
        live.core.version = version
        live.scheduler.new_weights(recompute=self._options.kv_on_update == "rebuild")

    async def _tensors(self, live: _Live, source: WeightSource) -> Iterable[tuple[str, Any]]:
        if source.mechanism == "tensors":
            return source.tensors()
        if source.mechanism == "hf-dir":
            return await asyncio.to_thread(read_directory, live.core.runner.model, source.path())
        raise TransportError("torch", f"the engine takes tensors or hf-dir, not {source.mechanism}")

    async def _replace(self, live: _Live, tensors: Iterable[tuple[str, Any]], version: WeightVersion) -> None:
        update, copied = live.parameters.update(), 0
        try:
            for name, tensor in tensors:
                update.copy(name, tensor)
                copied += tensor.nbytes
                if copied > _YIELD_BYTES:
                    copied = 0
                    await asyncio.sleep(0)
            update.finish()
        except BaseException as error:
            if update.begun:
                problem = f"the weights are part old, part {version}: {error}"
                self._fail(ComponentError(_NAME, "load_weights", problem))
            raise
