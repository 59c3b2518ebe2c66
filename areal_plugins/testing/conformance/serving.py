"""An engine served on a loop of its own, and what a worker would ask of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, frozen

from areal_core.contexts import EngineContext
from areal_core.data import Completion, GenerateRequest, Sampling, WeightVersion
from areal_core.protocols import Engine, WeightSource
from areal_plugins.testing.conformance.reference import Reference
from areal_plugins.testing.conformance.subject import Subject

T = TypeVar("T")

FIRST = WeightVersion(2, 5)
"""What the engine is started as: neither part of it is 0, nor are they equal."""
NEXT = WeightVersion(3, 6)


@frozen(eq=False)
class Bench:
    """Builds the engine as its worker does, for as long as `use` takes; `patience` seconds at most."""

    subject: Subject
    context: EngineContext
    patience: float

    def run(self, use: Callable[[Engine], Awaitable[T]], **context: Any) -> T:
        """What `use` returns, given a started engine."""
        return asyncio.run(self._run(use, evolve(self.context, **context)))

    async def _run(self, use: Callable[[Engine], Awaitable[T]], context: EngineContext) -> T:
        engine: Engine = self.subject.build(context)
        try:
            async with asyncio.timeout(self.patience) as limit:
                await engine.start(FIRST)
                found = await use(engine)
        except TimeoutError:
            if not limit.expired():
                raise
            raise AssertionError(f"what it was asked for did not come within {self.patience:g} s") from None
        finally:
            await engine.close()
        return found


def request(tokens: Sequence[int], *, name: str = "r", n: int = 1, seed: int = 0, **sampling: Any) -> GenerateRequest:
    """A request that ends by length, unless `sampling` says otherwise."""
    settings = {"max_new_tokens": 8, "ignore_eos": True} | sampling
    return GenerateRequest(name, np.asarray(tokens, dtype=np.int32), Sampling(**settings), n, seed)


async def collect(engine: Engine, wanted: GenerateRequest) -> list[Completion]:
    """All completions, by index."""
    return sorted([c async for c in engine.generate(wanted)], key=lambda c: c.index)


async def together(engine: Engine, wanted: Sequence[GenerateRequest]) -> list[list[Completion]]:
    """The completions of each request, all asked for at once."""
    return list(await asyncio.gather(*(collect(engine, each) for each in wanted)))


async def drawn(engine: Engine, tokens: int) -> None:
    """Return once the engine has drawn `tokens` tokens since its start."""
    while engine.stats().generated_tokens < tokens:  # noqa: ASYNC110  (no engine has an event for this)
        await asyncio.sleep(0)


async def turns(count: int = 50) -> None:
    """Let everything else on the loop go on for a while."""
    for _ in range(count):
        await asyncio.sleep(0)


async def swap(engine: Engine, source: WeightSource, version: WeightVersion, *, keep: bool) -> None:
    """New weights, as a worker commits them."""
    await engine.pause(keep)
    await engine.load_weights(source, version)
    await engine.resume()


class Weights:
    """A version as a transport hands it over: each tensor's memory is used again for the next one."""

    def __init__(self, model: Reference, mechanism: str = "tensors") -> None:
        self.model, self.mechanism = model, mechanism

    def tensors(self) -> Iterator[tuple[str, Any]]:
        for name, tensor in self.model.weights():
            yield name, tensor
            tensor.fill_(float("nan"))

    def path(self) -> Path:
        return self.model.directory

    def handle(self) -> Mapping[str, Any]:
        raise NotImplementedError(f"the kit hands weights over as tensors or a directory, not by {self.mechanism}")
