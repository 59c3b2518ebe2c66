"""Components small enough to see through, loaded like a local plugin: `files=(toys.py,)`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from areal_core.data import Completion, EngineStats, GenerateRequest, TensorInfo, WeightOffer, WeightVersion
from areal_core.errors import InputError, TransportError


@frozen
class Options:
    fail: str = ""
    """The operation that raises."""


class Toy:
    """Writes down what is asked of it, and raises where its options say so."""

    def __init__(self, options: Options, context: Any) -> None:
        self.options, self.context = options, context
        self.calls: list[str] = []
        self.threads: set[int] = set()
        self.built_in = threading.get_ident()
        self.note("build")

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.threads.add(threading.get_ident())
        if self.options.fail and call.startswith(self.options.fail):
            raise ZeroDivisionError(f"{call} failed")


class Engine(Toy):
    """Draws the number of its version; a tensor `bad` breaks it half-way; it has no room for the request `long`."""

    async def start(self, version: WeightVersion) -> None:
        self.note(f"start {version}")
        self.version, self.aborted = version, asyncio.Event()

    async def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        if request.id == "long":
            raise InputError("request long", "its prompt leaves no room for a token")
        try:
            for index in range(request.n):
                self.note(f"generate {index}")
                version = np.full(1, self.version.code)
                yield Completion(index, request.tokens[:1], np.zeros(1, np.float32), version, "stop")
            if request.id == "endless":
                await self.aborted.wait()
                yield Completion(index + 1, request.tokens[:1], np.zeros(1, np.float32), version, "abort")
        finally:
            self.calls.append("generated")

    async def abort(self, ids: Any = None) -> None:
        self.note(f"abort {ids}")
        self.aborted.set()

    async def pause(self, keep: bool) -> None:
        self.note(f"pause {keep}")

    async def resume(self) -> None:
        self.note("resume")

    async def load_weights(self, source: Any, version: WeightVersion) -> None:
        self.note(f"load {dict(source.tensors())}")
        self.version = version

    def stats(self) -> EngineStats:
        return EngineStats(generated_tokens=5)

    async def close(self) -> None:
        self.note("close")


class Source:
    mechanism = "tensors"

    def __init__(self, tensors: Mapping[str, float]) -> None:
        self._tensors = tensors

    def tensors(self) -> Iterator[tuple[str, Any]]:
        yield from self._tensors.items()


class Transport(Toy):
    """Carries the numbers in the offer itself."""

    def publish(self, version: WeightVersion, weights: Iterator[tuple[str, Any]], save: Any) -> WeightOffer:
        self.note(f"publish {version}")
        payload = dict(weights)
        save(Path("model"))
        return WeightOffer(version, "toy", "tensors", (TensorInfo("w", "float32", ()),), payload)

    def receive(self, offer: WeightOffer) -> Source:
        self.note(f"receive {offer.version}")
        if "damaged" in offer.payload:
            raise TransportError("toy", "checksum of w")
        return Source(offer.payload)

    def release(self, version: WeightVersion) -> None:
        self.note(f"release {version}")

    def close(self) -> None:
        self.note("close")


class Trainer(Toy):
    """Its weight is the number of its steps."""

    steps = 0.0

    def begin_stage(self, stage: Any) -> None:
        self.note(f"begin {stage.name} {stage.objective} {stage.optimizer.build('context')}")

    def train(self, batch: Any) -> dict[str, Any]:
        self.note(f"train {batch.step}")
        self.steps += 1
        return {"loss": np.float32(0.5), "tokens": 3}

    def weights(self) -> Iterator[tuple[str, Any]]:
        yield "w", self.steps

    def save_model(self, directory: Path) -> None:
        self.note(f"save_model {directory}")

    def save_state(self, directory: Path) -> None:
        self.note(f"save_state {directory}")

    def load_state(self, directory: Path) -> None:
        self.note(f"load_state {directory}")

    def close(self) -> None:
        self.note("close")


class Model:
    def __init__(self, _options: object, context: Any) -> None:
        self.context = context

    def materialize(self) -> Path:
        return self.context.cache / "model"


def make_pair(options: Options, context: Any) -> tuple[Options, Any]:
    return options, context


def refuse(_options: object, _context: object) -> None:
    raise InputError("model/config.json", "is not JSON")


def crash(_options: object, _context: object) -> None:
    raise ZeroDivisionError("in the factory")


def nothing(_options: object, _context: object) -> None:
    """A factory without a `return`."""
