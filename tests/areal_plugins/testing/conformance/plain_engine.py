"""An engine in numpy, as a stranger might write one, and engines that each break one promise.

It computes the whole sequence for every token, and remembers what it has computed.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from attrs import define, evolve, field
from safetensors.numpy import load_file

from areal_core.contexts import EngineContext
from areal_core.data import Completion, EngineStats, GenerateRequest, WeightVersion
from areal_plugins import EngineCapabilities, EngineDescriptor, InputError, PromptTooLong
from areal_plugins.builtin.models.tokenizer import HuggingFaceTokenizer

HEADS, KV_HEADS, LONGEST, EOS = 4, 2, 128, 1
_KNOWN: dict[Any, np.ndarray] = {}


class Weights:
    """A Qwen2 of two layers, with tied embeddings, in float64."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self.of = {name: np.array(tensor, dtype=np.float64) for name, tensor in tensors.items()}
        self.key = zlib.crc32(b"".join(self.of[name].tobytes() for name in sorted(self.of)))

    def logits(self, tokens: tuple[int, ...]) -> np.ndarray:
        """[V] of the token after `tokens`."""
        key = (self.key, tokens)
        if key not in _KNOWN:
            _KNOWN[key] = self._compute(tokens)
        return _KNOWN[key]

    def _compute(self, tokens: tuple[int, ...]) -> np.ndarray:
        embedding = self.of["model.embed_tokens.weight"]
        x = embedding[list(tokens)]
        for layer in range(2):
            at = f"model.layers.{layer}."
            x = x + self._attention(_normed(x, self.of[at + "input_layernorm.weight"]), at + "self_attn.")
            h = _normed(x, self.of[at + "post_attention_layernorm.weight"])
            gate, up = (h @ self.of[f"{at}mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            x = x + (gate / (1 + np.exp(-gate)) * up) @ self.of[at + "mlp.down_proj.weight"].T
        return _normed(x[-1], self.of["model.norm.weight"]) @ embedding.T

    def _attention(self, h: np.ndarray, at: str) -> np.ndarray:
        q, k, v = (h @ self.of[f"{at}{n}_proj.weight"].T + self.of[f"{at}{n}_proj.bias"] for n in "qkv")
        length, width = len(h), q.shape[1] // HEADS
        q = _rotated(q.reshape(length, HEADS, width))
        k = np.repeat(_rotated(k.reshape(length, KV_HEADS, width)), HEADS // KV_HEADS, axis=1)
        v = np.repeat(v.reshape(length, KV_HEADS, width), HEADS // KV_HEADS, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) / width**0.5
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v)
        return mixed.reshape(length, -1) @ self.of[f"{at}o_proj.weight"].T


def _normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight


def _rotated(x: np.ndarray) -> np.ndarray:
    """Rotary positions of [T, H, D]."""
    half = x.shape[-1] // 2
    angle = np.arange(len(x))[:, None, None] * 10000.0 ** (-np.arange(half) / half)
    one, two = x[..., :half], x[..., half:]
    return np.concatenate(
        [one * np.cos(angle) - two * np.sin(angle), two * np.cos(angle) + one * np.sin(angle)], axis=-1
    )


@cache
def _tokenizer(directory: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer(directory)


@cache
def _read(directory: Path) -> Weights:
    return Weights(load_file(directory / "model.safetensors"))


@define(eq=False)
class Row:
    """One completion as it is drawn."""

    request: GenerateRequest
    index: int
    out: asyncio.Queue[Completion]
    random: np.random.Generator
    arrival: WeightVersion
    tokens: list[int] = field(factory=list)
    logprobs: list[float] = field(factory=list)
    versions: list[int] = field(factory=list)

    @property
    def so_far(self) -> tuple[int, ...]:
        return (*self.request.tokens.tolist(), *self.tokens)


class PlainEngine:
    """Keeps every promise; its parts are there to be broken."""

    def __init__(self, options: object, context: EngineContext) -> None:
        self.context = context
        self.rows: list[Row] = []
        self.generated = self.prefilled = 0
        self.seconds = 0.0
        self.paused = False
        self.wake, self.idle = asyncio.Event(), asyncio.Event()

    async def start(self, version: WeightVersion) -> None:
        self.weights, self.version = _read(self.context.model), version
        self.tokenizer = _tokenizer(self.context.model)
        self.loop = asyncio.create_task(self.run(), name="plain")

    async def close(self) -> None:
        self.loop.cancel()
        await self.abort(None)

    def memory(self) -> float | None:
        return 0.5

    def relieve(self) -> None:
        """There is nothing to give back."""

    def resize(self, max_concurrent: int) -> None:
        self.context = evolve(self.context, max_concurrent=max_concurrent)
        self.wake.set()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        self.check(request)
        out: asyncio.Queue[Completion] = asyncio.Queue()
        self.prefilled += len(request.tokens)
        streams = [np.random.default_rng((request.seed, k)) for k in range(request.n)]
        rows = [Row(request, k, out, stream, self.version) for k, stream in enumerate(streams)]
        for row, begun in zip(rows, self.begun(request), strict=False):
            self.go_on(row, begun)
        self.rows += [row for row in rows if row.index not in {whole.index for whole in self.whole(request)}]
        self.wake.set()
        try:
            for whole in self.whole(request):
                yield whole
            for _ in range(request.n - len(self.whole(request))):
                yield await out.get()
        finally:
            self.rows = [row for row in self.rows if row not in rows]

    def begun(self, request: GenerateRequest) -> Sequence[Completion]:
        return request.begun

    def whole(self, request: GenerateRequest) -> Sequence[Completion]:
        return [completion for completion in self.begun(request) if completion.finish != "abort"]

    def go_on(self, row: Row, begun: Completion) -> None:
        row.tokens, row.logprobs = begun.tokens.tolist(), begun.logprobs.tolist()
        row.versions = begun.versions.tolist()
        row.random.random(len(row.tokens))

    def partial(self, request: str) -> list[Completion]:
        return [self.completion(row, "abort", "") for row in self.rows if row.request.id == request]

    async def abort(self, ids: Sequence[str] | None = None) -> None:
        for row in [row for row in self.rows if ids is None or row.request.id in ids]:
            self.end(row, "abort")

    async def pause(self, keep: bool) -> None:
        while not keep and self.rows:  # noqa: ASYNC110
            await asyncio.sleep(0)
        self.paused = True

    async def resume(self) -> None:
        self.paused = False
        self.wake.set()

    async def load_weights(self, source: Any, version: WeightVersion) -> None:
        hf = source.mechanism == "hf-dir"
        self.weights = _read(source.path()) if hf else Weights({n: t.numpy().copy() for n, t in source.tensors()})
        self.version = version

    def stats(self) -> EngineStats:
        running = len(self.rows[: self.context.max_concurrent])
        return EngineStats(self.generated, self.prefilled, self.seconds, running, len(self.rows) - running)

    def check(self, request: GenerateRequest) -> None:
        sampling, where = request.sampling, f"request {request.id}"
        if not len(request.tokens) or request.tokens.max() >= len(self.weights.of["model.embed_tokens.weight"]):
            raise InputError(where, "its prompt is empty, or no prompt of this model")
        if len(request.tokens) >= LONGEST:
            raise PromptTooLong(where, "its prompt is too long")
        if request.n < 1 or sampling.max_new_tokens < 1 or sampling.temperature < 0:
            raise InputError(where, "it makes no sense")

    async def run(self) -> None:
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.rows and not self.paused:
                for row in self.rows[: self.context.max_concurrent]:
                    self.step(row)
                await asyncio.sleep(0)

    def step(self, row: Row) -> None:
        p = self.distribution(self.weights.logits(row.so_far), row)
        token = self.draw(p, row)
        row.tokens.append(token)
        row.logprobs.append(float(np.log(p[token])))
        row.versions.append(self.version.code)
        self.generated += 1
        self.seconds += 1e-6
        if finish := self.finished(row):
            self.end(row, finish)

    def draw(self, p: np.ndarray, row: Row) -> int:
        if row.request.sampling.temperature == 0:
            return int(p.argmax())
        return int(np.searchsorted(np.cumsum(p), row.random.random()))

    def distribution(self, logits: np.ndarray, row: Row) -> np.ndarray:
        sampling = row.request.sampling
        if len(row.tokens) < sampling.min_new_tokens:
            logits = logits.copy()
            logits[self.stops(row)] = -np.inf
        p = np.exp((logits - logits.max()) / (sampling.temperature or 1.0))
        order = np.argsort(-p, kind="stable")
        if sampling.top_k and sampling.temperature:
            p[order[sampling.top_k :]] = 0
        p /= p.sum()
        if sampling.top_p < 1 and sampling.temperature:
            p[order[np.cumsum(p[order]) - p[order] >= sampling.top_p]] = 0
        return p / p.sum()

    def stops(self, row: Row) -> list[int]:
        sampling = row.request.sampling
        return [*sampling.stop_token_ids, *([] if sampling.ignore_eos else [EOS])]

    def finished(self, row: Row) -> str:
        if row.tokens[-1] in self.stops(row) or any(s in self.text(row) for s in row.request.sampling.stop):
            return "stop"
        full = len(row.tokens) >= row.request.sampling.max_new_tokens or len(row.so_far) >= LONGEST
        return "length" if full else ""

    def text(self, row: Row) -> str:
        return self.tokenizer.decode(row.tokens)

    def end(self, row: Row, finish: str) -> None:
        self.rows.remove(row)
        text = self.text(row)
        for stop in row.request.sampling.stop:
            text = text.partition(stop)[0]
        row.out.put_nowait(self.completion(row, finish, text))

    def completion(self, row: Row, finish: Any, text: str) -> Completion:
        tokens = np.array(row.tokens, dtype=np.int32)
        logprobs = np.array(row.logprobs, dtype=np.float32)
        return Completion(row.index, tokens, logprobs, np.array(row.versions, dtype=np.int64), finish, text)


# --- each breaks one promise -----------------------------------------------------------------------


class DoubleColumns(PlainEngine):
    def completion(self, row, finish, text):
        made = super().completion(row, finish, text)
        return evolve(made, logprobs=made.logprobs.astype(np.float64))


class ForgetsNucleus(PlainEngine):
    """Reports the log-probability before top-p."""

    def step(self, row):
        super().step(row)
        sampling = row.request.sampling
        if sampling.top_p < 1:
            whole = evolve(row, request=evolve(row.request, sampling=evolve(sampling, top_p=1.0)))
            row.logprobs[-1] = float(
                np.log(self.distribution(self.weights.logits(row.so_far[:-1]), whole)[row.tokens[-1]])
            )


class SecondBest(PlainEngine):
    """Its greedy answers are not, every tenth token."""

    def draw(self, p, row):
        tenth = len(row.tokens) == 14 and row.request.sampling.temperature == 0
        return int(np.argsort(p)[-2]) if tenth else super().draw(p, row)


class Unfair(PlainEngine):
    """Draws a first token more often than it should."""

    def draw(self, p, row):
        first = not row.tokens and row.request.sampling.top_k == 6 and row.index % 3 == 0
        return int(p.argmax()) if first else super().draw(p, row)


class SharedRandomness(PlainEngine):
    """All requests draw from one stream, in the order in which they come."""

    shared = None

    def draw(self, p, row):
        self.shared = self.shared or np.random.default_rng(row.request.seed)
        row.random = self.shared
        return super().draw(p, row)


class EqualMembers(PlainEngine):
    """All members of a group draw alike."""

    def draw(self, p, row):
        if not row.tokens and row.request.sampling.top_k != 6:
            row.random = np.random.default_rng(row.request.seed)
        return super().draw(p, row)


class LosesIndices(PlainEngine):
    def completion(self, row, finish, text):
        return evolve(super().completion(row, finish, text), index=0)


class NeverEnds(PlainEngine):
    """Knows no end token."""

    def stops(self, row):
        return list(row.request.sampling.stop_token_ids)


class AlwaysEnds(PlainEngine):
    """Knows no `ignore_eos`."""

    def stops(self, row):
        long = row.request.sampling.max_new_tokens == 40 and row.request.n == 8
        return [*super().stops(row), *([EOS] if long else [])]


class DropsStopToken(PlainEngine):
    """Keeps the stop token back."""

    def completion(self, row, finish, text):
        made = super().completion(row, finish, text)
        if finish != "stop" or not row.request.sampling.stop_token_ids or row.request.sampling.min_new_tokens:
            return made
        return evolve(made, tokens=made.tokens[:-1], logprobs=made.logprobs[:-1], versions=made.versions[:-1])


class KeepsStopString(PlainEngine):
    def completion(self, row, finish, text):
        return super().completion(row, finish, text + "".join(row.request.sampling.stop))


class OutgrowsModel(PlainEngine):
    def finished(self, row):
        return super().finished(row) if len(row.so_far) != LONGEST else ""


class SpellsSpecials(PlainEngine):
    """Leaves special tokens in the text."""

    def completion(self, row, finish, text):
        made = super().completion(row, finish, text)
        return evolve(made, text=text + "</s>" * row.tokens.count(EOS))


class Brief(PlainEngine):
    """Knows no shortest length."""

    def distribution(self, logits, row):
        free = evolve(row.request, sampling=evolve(row.request.sampling, min_new_tokens=0))
        return super().distribution(logits, evolve(row, request=free))


class AbortsAll(PlainEngine):
    async def abort(self, ids=None):
        await super().abort(None)


class AbortsRunning(PlainEngine):
    """Lets go on what waits."""

    async def abort(self, ids=None):
        for row in [r for r in self.rows[: self.context.max_concurrent] if ids is None or r.request.id in ids]:
            self.end(row, "abort")


class Unstoppable(PlainEngine):
    """Draws on for whoever has left."""

    async def generate(self, request):
        inner, out = super().generate(request), asyncio.Queue()

        async def pump():
            try:
                async for completion in inner:
                    out.put_nowait(completion)
            except Exception as error:
                out.put_nowait(error)

        self.pump = asyncio.ensure_future(pump())
        for _ in range(max(request.n, 1)):
            got = await out.get()
            if isinstance(got, Exception):
                raise got
            yield got


class Restless(PlainEngine):
    """A pause ends a while after it has been asked for."""

    async def pause(self, keep):
        asyncio.get_running_loop().call_later(0, self.resume_soon)
        await super().pause(keep)

    def resume_soon(self):
        self.paused = False
        self.wake.set()


class Forgetful(PlainEngine):
    """Running completions begin anew after a pause, and say nothing of it."""

    async def resume(self):
        for row in self.rows:
            row.tokens, row.logprobs, row.versions = [], [], []
        await super().resume()


class BeginsAnew(PlainEngine):
    """Tells what it has drawn, and knows nothing of it afterwards."""

    def begun(self, request):
        return ()


class Impatient(PlainEngine):
    """Does not wait for what runs."""

    async def pause(self, keep):
        await super().pause(True)


class KeepsWeights(PlainEngine):
    """New weights change nothing but the version."""

    async def load_weights(self, source, version):
        self.version = version


class KeepsVersion(PlainEngine):
    """New weights, and tokens of the old version."""

    async def load_weights(self, source, version):
        old = self.version
        await super().load_weights(source, version)
        self.version = old


class BorrowsWeights(PlainEngine):
    """Keeps the transport's memory instead of copying it."""

    async def load_weights(self, source, version):
        if source.mechanism == "hf-dir":
            return await super().load_weights(source, version)
        held = dict(source.tensors())
        self.weights, self.version = Weights({name: tensor.numpy() for name, tensor in held.items()}), version
        return None


class StaleCache(PlainEngine):
    """What was computed for a prompt under old weights is used under new ones."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.prompts = {}

    def step(self, row):
        kept, prompt = self.weights, row.so_far
        if not row.tokens:
            self.weights = self.prompts.setdefault(prompt, kept)
        super().step(row)
        self.weights = kept


class LastVersion(PlainEngine):
    """All tokens of an answer carry the version under which it ended."""

    def completion(self, row, finish, text):
        made = super().completion(row, finish, text)
        return evolve(made, versions=np.full_like(made.versions, self.version.code))


class ArrivalVersion(PlainEngine):
    """All tokens of an answer carry the version under which it was asked for."""

    def completion(self, row, finish, text):
        made = super().completion(row, finish, text)
        return evolve(made, versions=np.full_like(made.versions, row.arrival.code))


class OneByOne(PlainEngine):
    """Serves single requests one after the other."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.turn = asyncio.Lock()

    async def generate(self, request):
        async with self.turn if request.n == 1 else nullcontext():
            async for completion in super().generate(request):
                yield completion


class BlocksLoop(PlainEngine):
    """Draws whole answers without giving the loop back."""

    def step(self, row):
        while row in self.rows:
            super().step(row)


class Crowded(PlainEngine):
    """Knows no `max_concurrent`."""

    def __init__(self, options, context):
        super().__init__(options, evolve(context, max_concurrent=64))


class Unshrinkable(PlainEngine):
    def resize(self, max_concurrent: int) -> None:
        """As if nobody had asked."""


class Bursting(PlainEngine):
    def memory(self) -> float | None:
        return 1.5


class ShortensPrompts(PlainEngine):
    async def generate(self, request):
        async for completion in super().generate(evolve(request, tokens=request.tokens[-LONGEST + 10 :])):
            yield completion


class AnswersNonsense(PlainEngine):
    """A request for no completion is answered by none."""

    def check(self, request):
        if request.n:
            super().check(request)


class DiesOfNonsense(PlainEngine):
    """After a wrong request it serves none."""

    broken = False

    def check(self, request):
        if self.broken:
            raise RuntimeError("the engine is gone")
        self.broken = not len(request.tokens)
        super().check(request)


class CountsWrongly(PlainEngine):
    """Nothing ever waits."""

    def stats(self):
        return evolve(super().stats(), waiting=0)


class PrefillsEach(PlainEngine):
    """Computes the prompt for each member."""

    async def generate(self, request):
        self.prefilled += len(request.tokens) * (request.n - 1)
        async for completion in super().generate(request):
            yield completion


class LeavesTask(PlainEngine):
    async def close(self):
        await self.abort(None)


class Hangs(PlainEngine):
    """Whoever waits when it is closed waits for ever."""

    async def close(self):
        self.loop.cancel()


def descriptor(kind: type[PlainEngine]) -> EngineDescriptor:
    return EngineDescriptor(
        name="plain",
        summary="A Qwen2 in numpy",
        factory=f"{__name__}:{kind.__name__}",
        capabilities=EngineCapabilities(accepts=("tensors", "hf-dir"), interruptible=True, shares_prefix=True),
    )
