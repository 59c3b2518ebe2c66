"""An engine whose tokens spell the version of its weights."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import numpy as np
from attrs import define, evolve, field

from areal_core.contexts import EngineContext
from areal_core.data import Completion, EngineStats, Finish, GenerateRequest, WeightVersion
from areal_core.errors import ComponentError
from areal_core.protocols import WeightSource
from areal_core.workers.seeds import derive
from areal_plugins.testing.mocks import model
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import EngineOptions, quantile

_SPAN = float(1 << 63)
_FIRST = 256


def make(options: EngineOptions, context: EngineContext) -> MockEngine:
    """The factory."""
    return MockEngine(options, context)


def spell(steps: int) -> int:
    """The token that weights of `steps` steps draw; no byte, so that no prompt has it."""
    return _FIRST + steps


@define(eq=False)
class _Running:
    """A completion being drawn, after what was `begun` of it: stretches of tokens, each under one version.

    `since` is when the present stretch began, how many tokens it is to have, its weights, and their version.
    """

    request: GenerateRequest
    begun: Completion
    length: int
    out: asyncio.Queue[Completion]
    stretches: list[tuple[int, int, int]] = field(factory=list)
    drawn: int = 0
    since: tuple[float, int, int, int] | None = None

    @property
    def index(self) -> int:
        return self.begun.index


class MockEngine:
    """Draws `max_concurrent` completions at a time, first come first served, each token in `token_seconds`."""

    def __init__(self, options: EngineOptions, context: EngineContext) -> None:
        self._options, self._context, self._conduct = options, context, Conduct(options)
        self._places = asyncio.Semaphore(context.max_concurrent)
        self._going = asyncio.Event()
        self._going.set()
        self._pausing = asyncio.Event()
        self._still = asyncio.Event()
        self._still.set()
        self._held = model.read(context.model)
        self._version = WeightVersion()
        self._tasks: dict[asyncio.Task[None], _Running] = {}
        self._tokens = 0
        self._busy = 0.0
        self._waiting = self._computing = 0

    async def start(self, version: WeightVersion) -> None:
        await self._conduct.act("start")
        self._version = version

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        times = await self._conduct.act("generate", request.seed)
        out: asyncio.Queue[Completion] = asyncio.Queue()
        begun = request.begun or tuple(Completion.empty(k, "abort") for k in range(request.n))
        tasks = [self._begin(request, completion, out) for completion in begun if completion.finish == "abort"]
        for completion in begun:
            if completion.finish != "abort":
                out.put_nowait(completion)
        try:
            for _ in range(request.n):
                completion = await out.get()
                for _ in range(times):
                    yield completion
        finally:
            for task in tasks:
                task.cancel()

    def partial(self, request: str) -> list[Completion]:
        self._conduct.act_here("partial")
        return [self._so_far(running) for running in self._tasks.values() if running.request.id == request]

    async def abort(self, ids: Sequence[str] | None = None) -> None:
        await self._conduct.act("abort")
        for task, running in list(self._tasks.items()):
            if ids is None or running.request.id in ids:
                task.cancel()
                running.out.put_nowait(self._completion(running, "abort"))

    async def pause(self, keep: bool) -> None:
        await self._conduct.act("pause")
        if not keep:
            await asyncio.gather(*self._tasks, return_exceptions=True)  # one may be aborted meanwhile
        self._going.clear()
        self._pausing.set()
        await self._still.wait()

    async def resume(self) -> None:
        await self._conduct.act("resume")
        self._pausing.clear()
        self._going.set()

    async def load_weights(self, source: WeightSource, version: WeightVersion) -> None:
        await self._conduct.act("load_weights")
        if not self._options.stale:
            self._held = int(dict(source.tensors())["steps"][0])
            if self._held != version.step:
                raise ComponentError("engine/mock", f"load {version}", f"these are the weights of step {self._held}")
        self._version = version

    def stats(self) -> EngineStats:
        return EngineStats(self._tokens, 0, self._busy, len(self._tasks) - self._waiting, self._waiting)

    async def close(self) -> None:
        await self._conduct.act("close")
        for task in list(self._tasks):
            task.cancel()

    def _begin(self, request: GenerateRequest, begun: Completion, out: asyncio.Queue[Completion]) -> asyncio.Task[None]:
        running = _Running(request, begun, self._length(request, begun.index), out, drawn=len(begun.tokens))
        task = asyncio.ensure_future(self._draw(running))
        self._tasks[task] = running
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    def _length(self, request: GenerateRequest, index: int) -> int:
        """Drawn from the stream `(seed, index)`."""
        told, point = self._options, derive(request.seed, index) / _SPAN
        length = quantile(told.lengths, point, told.shortest, told.longest, told.exponent)
        return max(1, request.sampling.min_new_tokens, int(length + 0.5))

    async def _draw(self, running: _Running) -> None:
        limit = running.request.sampling.max_new_tokens
        target = min(running.length, limit)
        self._waiting += 1
        async with self._places:
            self._waiting -= 1
            while running.drawn < target:
                await self._going.wait()
                await self._stretch(running, target - running.drawn)
        running.out.put_nowait(self._completion(running, "length" if running.length > limit else "stop"))

    async def _stretch(self, running: _Running, wanted: int) -> None:
        """Draw up to `wanted` tokens under the weights as they are, fewer when there is a pause meanwhile."""
        each, clock = self._options.token_seconds, asyncio.get_running_loop().time
        began, held, version = clock(), self._held, self._version
        pausing = asyncio.ensure_future(self._pausing.wait())
        running.since = began, wanted, held, version.code
        self._computing += 1
        self._still.clear()
        try:
            await asyncio.wait({pausing}, timeout=wanted * each)
            interrupted = pausing.done()
        finally:
            pausing.cancel()
            self._computing -= 1
            if not self._computing:
                self._still.set()
        seconds = clock() - began
        drawn = min(wanted, round(seconds / each)) if interrupted and each else wanted
        running.since = None
        running.stretches.append((drawn, held, version.code))
        running.drawn += drawn
        self._tokens += drawn
        self._busy += seconds / self._context.max_concurrent

    def _so_far(self, running: _Running) -> Completion:
        """With as much of the present stretch as is drawn by now."""
        each, stretches = self._options.token_seconds, list(running.stretches)
        if running.since is not None and each:
            began, wanted, held, code = running.since
            drawn = int((asyncio.get_running_loop().time() - began) / each)
            stretches.append((min(drawn, wanted), held, code))
        return _made(running, stretches, "abort")

    def _completion(self, running: _Running, finish: Finish) -> Completion:
        made = _made(running, running.stretches, finish)
        if not len(made.tokens):
            return made
        first = int(made.tokens[0]) - spell(0)
        return evolve(made, text=f"{first} {derive(running.request.seed, running.index, 2) / _SPAN}")


def _made(running: _Running, stretches: Sequence[tuple[int, int, int]], finish: Finish) -> Completion:
    begun, counts = running.begun, [count for count, _, _ in stretches]
    tokens = np.repeat(np.array([spell(held) for _, held, _ in stretches], dtype=np.int32), counts)
    versions = np.repeat(np.array([code for _, _, code in stretches], dtype=np.int64), counts)
    logprobs = drawn_logprobs(running.request.seed, running.index, len(begun.tokens) + len(tokens))
    return Completion(
        index=running.index,
        tokens=np.concatenate([begun.tokens, tokens]),
        logprobs=np.concatenate([begun.logprobs, logprobs[len(begun.tokens) :]]),
        versions=np.concatenate([begun.versions, versions]),
        finish=finish,
    )


def drawn_logprobs(seed: int, index: int, count: int) -> np.ndarray:
    """Numbers that differ by request, member and place: of a completion's first `count` tokens."""
    start = derive(seed, index, 1) % 1000
    made: np.ndarray = -((np.arange(count) + start) % 1000 + 1).astype(np.float32) / np.float32(1000.0)
    return made
