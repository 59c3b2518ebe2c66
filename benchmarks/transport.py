"""Moving weights from a trainer process to an engine process: our transports beside safetensors on disk.

A time is that from the trainer's tensors to the engine's, median of the rounds. `in place`
leaves out the engine's own copy: it would compute on the shared memory itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from _report import finish, median, table
from attrs import evolve, frozen
from safetensors.torch import load_file, save_file

from areal_plugins import data, protocols
from areal_plugins.builtin.transports import DiskOptions, ShmOptions
from areal_plugins.builtin.transports.disk import DiskTransport
from areal_plugins.builtin.transports.shm import ShmTransport

Weights = dict[str, torch.Tensor]
BASELINE = "safetensors on disk"
VERIFIED, LIKE_FOR_LIKE = "shm", "shm, no verify"
TARGET = 2.0


@frozen
class Model:
    """A decoder's sizes."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    key_value: int
    vocabulary: int

    def weights(self, dtype: torch.dtype) -> Weights:
        """Random parameters."""
        return {name: torch.randn(shape, dtype=torch.float32).to(dtype) for name, shape in self._shapes()}

    def _shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        hidden, wide = self.hidden, self.intermediate
        rows = {"q": (hidden, hidden), "k": (self.key_value, hidden), "v": (self.key_value, hidden)}
        rows |= {"o": (hidden, hidden), "gate": (wide, hidden), "up": (wide, hidden), "down": (hidden, wide)}
        yield "embed", (self.vocabulary, hidden)
        for layer in range(self.layers):
            yield from ((f"{layer}.{name}", shape) for name, shape in rows.items())
            yield from ((f"{layer}.{name}", (hidden,)) for name in ("input_norm", "post_norm"))
        yield "norm", (hidden,)


MODELS = {
    "135M": Model("135M", hidden=576, intermediate=1536, layers=30, key_value=192, vocabulary=49152),
    "500M": Model("500M", hidden=896, intermediate=4864, layers=24, key_value=128, vocabulary=151936),
}


@frozen
class Way:
    """How the trainer puts weights somewhere (`put` returns what the engine is told)."""

    name: str
    put: Callable[[int, Weights], Any]
    release: Callable[[int], None] = lambda step: None
    take: str = "transport"
    copy: bool = True
    verify: bool = True


def transport(kind: type, side: str, work: Path, verify: bool, mechanism: str = "tensors") -> Any:
    """One end of a transport."""
    options = ShmOptions() if kind is ShmTransport else DiskOptions()
    return kind(options, protocols.TransportContext(side, protocols.Place(), work, verify, 256 << 20, mechanism))


def through(kind: type, name: str, verify: bool, work: Path, stack: ExitStack, copy: bool = True) -> Way:
    """One of our transports."""
    trainer = transport(kind, "trainer", work / name.replace(" ", "-"), verify)
    stack.callback(trainer.close)

    def put(step: int, weights: Weights) -> data.WeightOffer:
        offer: data.WeightOffer = trainer.publish(data.WeightVersion(0, step), iter(weights.items()), lambda path: None)
        return offer

    return Way(name, put, lambda step: trainer.release(data.WeightVersion(0, step)), copy=copy, verify=verify)


def through_safetensors(name: str, folder: Path) -> Way:
    """What one writes without a transport."""

    def put(step: int, weights: Weights) -> str:
        save_file(weights, folder / "model.safetensors")
        return str(folder / "model.safetensors")

    return Way(name, put, take="safetensors")


def engine(link: Connection, model: str, dtype: str, work: Path) -> None:
    """The other process: takes weights into parameters of its own until None comes."""
    torch.set_num_threads(1)
    parameters = MODELS[model].weights(getattr(torch, dtype))
    ends = {
        (kind.__name__, verify): transport(kind, "engine", work, verify)
        for kind in (ShmTransport, DiskTransport)
        for verify in (True, False)
    }
    while (order := link.recv()) is not None:
        way, told = order
        found = _take(way, told, ends)
        for name, tensor in found:
            if way.copy:
                parameters[name].copy_(tensor)
        link.send(float(parameters["norm"][0]))


def _take(way: Way, told: Any, ends: dict[tuple[str, bool], Any]) -> Iterator[tuple[str, torch.Tensor]]:
    if way.take == "safetensors":
        return iter(load_file(told).items())
    kind = "ShmTransport" if told.transport == "shm" else "DiskTransport"
    received: Iterator[tuple[str, torch.Tensor]] = ends[kind, way.verify].receive(told).tensors()
    return received


def measure(model: str, dtype: str, rounds: int) -> dict[str, float]:
    """Median milliseconds of each way."""
    weights = MODELS[model].weights(getattr(torch, dtype))
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir="/dev/shm") as fast:
        process = spawn.Process(target=engine, args=(there, model, dtype, Path(folder)))
        process.start()
        times = {}
        for make in (*_ours(Path(folder)), *_safetensors(Path(folder), Path(fast))):
            with ExitStack() as stack:
                way = make(stack)
                times[way.name] = 1e3 * median(_rounds(way, weights, here, rounds))
        here.send(None)
        process.join()
    return times


def _ours(work: Path) -> list[Callable[[ExitStack], Way]]:
    """Those that leave the disk alone come first: it goes on writing for a while."""
    return [
        partial(through, ShmTransport, VERIFIED, True, work),
        partial(through, ShmTransport, LIKE_FOR_LIKE, False, work),
        partial(through, ShmTransport, "shm, in place", True, work, copy=False),
        partial(through, ShmTransport, "shm, in place, no verify", False, work, copy=False),
        partial(through, DiskTransport, "disk", True, work),
    ]


def _safetensors(work: Path, fast: Path) -> list[Callable[[ExitStack], Way]]:
    return [
        lambda stack: through_safetensors("safetensors in /dev/shm", fast),
        lambda stack: through_safetensors(BASELINE, work),
    ]


def _rounds(way: Way, weights: Weights, link: Connection, rounds: int) -> list[float]:
    """Two more come first: they fill both segments, and the page cache."""
    return [_move(way, step, weights, link) for step in range(rounds + 2)][2:]


def _move(way: Way, step: int, weights: Weights, link: Connection) -> float:
    weights["norm"][0] = step
    began = time.perf_counter()
    told = way.put(step, weights)
    link.send((evolve(way, put=None, release=None), told))
    arrived = link.recv()
    seconds = time.perf_counter() - began
    if way.copy and arrived != step:
        raise RuntimeError(f"{way.name}: the engine holds {arrived}, the trainer {step}")
    way.release(step - 1)
    return seconds


def main() -> int:
    """Print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small model alone, three rounds")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 3 if arguments.quick else arguments.rounds
    cases = [("135M", "bfloat16"), ("135M", "float32")]
    if not arguments.quick:
        cases += [("500M", "bfloat16"), ("500M", "float32")]
    figures = {f"{model} {dtype}": measure(model, dtype, rounds) for model, dtype in cases}
    ways = list(next(iter(figures.values())))
    print("milliseconds, median of", rounds)
    print(table([["", *ways], *([case, *(f"{times[way]:.0f}" for way in ways)] for case, times in figures.items())]))
    ratios = {case: times[BASELINE] / times[LIKE_FOR_LIKE] for case, times in figures.items()}
    verified = {case: times[BASELINE] / times[VERIFIED] for case, times in figures.items()}
    record = {"milliseconds": figures, "ratio": ratios, "ratio_verified": verified, "target": TARGET}
    return finish("transport", record, f"{BASELINE}, which verifies nothing", min(ratios.values()) >= TARGET)


if __name__ == "__main__":
    raise SystemExit(main())
