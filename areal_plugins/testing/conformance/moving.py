"""Both ends of a transport, in this process and in another, and the bits that cross."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, field, frozen

from areal_core.contexts import ModuleRef, TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_core.protocols import Transport
from areal_core.workers.build import build
from areal_plugins.testing.conformance.subject import Subject

Bits = tuple[str, tuple[int, ...], bytes]
"""A tensor's dtype, shape and bytes."""


class Interrupted(Exception):
    """Stands for whatever ends a trainer's weights half-way."""


@frozen(eq=False)
class Ends:
    """Builds ends of the transport, and closes them all."""

    subject: Subject
    context: TransportContext
    made: list[Transport] = field(factory=list)

    def make(self, side: str, **context: Any) -> Transport:
        """One end; `side` is `trainer` or `engine`."""
        end: Transport = self.subject.build(evolve(self.context, side=side, **context))
        self.made.append(end)
        return end

    def both(self, **context: Any) -> tuple[Transport, Transport]:
        """The trainer's end, and the engine's."""
        return self.make("trainer", **context), self.make("engine", **context)

    def close(self) -> None:
        """Close every end that is left, the latest first."""
        while self.made:
            self.made.pop().close()


def random_bits(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 0) -> torch.Tensor:
    """Any bits there are, NaNs with payloads among them."""
    count = torch.Size(shape).numel() * dtype.itemsize
    high = 2 if dtype is torch.bool else 256
    drawn = torch.randint(0, high, (count,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return drawn.view(dtype).view(shape)


def bits(tensor: torch.Tensor) -> Bits:
    """What must arrive of `tensor`."""
    whole = tensor.detach().contiguous().view(-1)
    data = whole.view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    return str(tensor.dtype), tuple(tensor.shape), data


def publish(trainer: Transport, version: WeightVersion, weights: Mapping[str, torch.Tensor]) -> WeightOffer:
    """Named tensors, and a directory of them for who asks for one."""
    return trainer.publish(version, iter(weights.items()), lambda directory: save(directory, weights))


def save(directory: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """The weights as a trainer saves them: `model.safetensors` and what lies beside it."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text('{"model_type": "none"}', encoding="utf-8")
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}, directory / FILE)


FILE = "model.safetensors"


def arrived(engine: Transport, offer: WeightOffer) -> dict[str, Bits]:
    """The tensors that the engine's end gets."""
    source = engine.receive(offer)
    assert source.mechanism == "tensors", f"what was published as tensors is received as {source.mechanism}"
    return {name: bits(tensor) for name, tensor in source.tensors()}


def unlike(found: Mapping[str, Bits], sent: Mapping[str, torch.Tensor]) -> str:
    """What of `sent` did not arrive as it was; empty when all did."""
    if found.keys() != sent.keys():
        return f"names differ: {', '.join(sorted(found.keys() ^ sent.keys()))}"
    problems = (_unlike(name, found[name], bits(tensor)) for name, tensor in sent.items())
    return "; ".join(filter(None, problems))


def _unlike(name: str, found: Bits, expected: Bits) -> str:
    if found[:2] != expected[:2]:
        return f"{name} is {found[0]}{list(found[1])}, not {expected[0]}{list(expected[1])}"
    return "" if found[2] == expected[2] else f"the bytes of {name} ({found[0]}{list(found[1])}) differ"


# --- another process -------------------------------------------------------------------------------


@contextmanager
def peer(
    work: Callable[[Connection, ModuleRef, TransportContext], None], ref: ModuleRef, context: TransportContext
) -> Iterator[Connection]:
    """A fresh process that does `work`, and the link to it; it has ended afterwards."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=work, args=(there, ref, context), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        here.close()
        process.join()


def engine_peer(link: Connection, ref: ModuleRef, context: TransportContext) -> None:
    """Answers each offer with what arrived, or with the error, until the link ends."""
    engine: Transport = build(ref, context)
    for offer in _received(link):
        try:
            link.send(arrived(engine, offer))
        except Exception as error:
            link.send(f"{type(error).__name__}: {error}")
    engine.close()


def doomed_peer(link: Connection, ref: ModuleRef, context: TransportContext) -> None:
    """A trainer that publishes one version and is killed in the middle of the next."""
    trainer: Transport = build(ref, context)
    weights = {"weight": torch.ones(1000)}
    link.send(publish(trainer, WeightVersion(0, 1), weights))

    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield "weight", torch.zeros(1000)
        os._exit(9)

    trainer.publish(WeightVersion(0, 2), broken(), lambda _: os._exit(9))


def _received(link: Connection) -> Iterator[Any]:
    try:
        while True:
            yield link.recv()
    except EOFError:
        return


# --- what is kept where ----------------------------------------------------------------------------


def held_files(work: Path) -> set[Path]:
    """The files below `work`, and those in memory or temporary folders that this process has open or mapped."""
    below = {path for path in work.rglob("*") if path.is_file()}
    return below | {path for path in map(Path, _open_files()) if path.is_file()}


def _open_files() -> Iterable[str]:
    folders = ("/dev/shm/", "/tmp/", "/run/", "/var/tmp/")  # noqa: S108 - looked at, nothing is made there
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return set()
    mapped = (line.split(maxsplit=5)[5] for line in maps.read_text().splitlines() if line.count("/"))
    opened = (os.path.realpath(entry) for entry in Path("/proc/self/fd").iterdir())
    return {name for name in (*mapped, *opened) if name.startswith(folders)}


def sockets() -> int:
    """How many sockets this process has open."""
    folder = Path("/proc/self/fd")
    return sum(os.path.realpath(entry).startswith(f"{folder.resolve()}/socket:") for entry in folder.iterdir())


def damage(files: Iterable[Path], data: bytes) -> bool:
    """Change one bit in each file wherever it holds `data`; whether any does."""
    found = False
    for file in files:
        content = file.read_bytes()
        at = content.find(data)
        if at >= 0:
            found = True
            with file.open("r+b") as stream:
                stream.seek(at + len(data) // 2)
                stream.write(bytes([content[at + len(data) // 2] ^ 1]))
    return found
