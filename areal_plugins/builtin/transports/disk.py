"""Trainer and engines on a shared file system: weights cross as directories.

A directory appears whole or not at all: it is written aside, flushed to the disk and renamed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from areal_core.contexts import TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import TransportError
from areal_plugins.builtin.ownership import run_key
from areal_plugins.builtin.transports import DiskOptions
from areal_plugins.builtin.transports.manifest import problems, read_manifest, write_manifest
from areal_plugins.builtin.transports.shards import write_shards
from areal_plugins.builtin.transports.source import Source, expect
from areal_plugins.builtin.transports.tensor import drain

NAME = "disk"


class DiskTransport:
    """`protocols.Transport` over files; `hf-dir` is what the trainer saves, `tensors` bare safetensors."""

    def __init__(self, options: DiskOptions, context: TransportContext) -> None:
        self._root = Path(options.path or context.work) / f"areal-weights-{run_key(context.work)}"
        self._context = context
        self._mechanism = context.mechanism or "hf-dir"
        self._writes = context.side == "trainer" and context.place.rank == 0
        if self._writes:  # versions of a trainer that was killed; its engines are told of none of them any more
            shutil.rmtree(self._root, ignore_errors=True)

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, torch.Tensor]], save: Callable[[Path], None]
    ) -> WeightOffer:
        """Write `version`'s directory."""
        partial = self._root / f".{version}.partial"
        if not self._writes:
            self._take_part(partial, weights, save)
            return WeightOffer(version, NAME, self._mechanism)
        self.release(version)
        partial.mkdir(parents=True)
        try:
            self._write(partial, weights, save)
            listed = write_manifest(partial)
            _flush(partial)
            partial.rename(self._directory(version))
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        _fsync(self._root)
        place = {"directory": str(self._directory(version)), "manifest": listed}
        return WeightOffer(version, NAME, self._mechanism, payload=place)

    def receive(self, offer: WeightOffer) -> DiskSource:
        """The published directory, checked file by file.

        Raises:
            TransportError: names the file that is missing, too short or, with `verify`, damaged.

        """
        expect(NAME, offer)
        directory = Path(offer.payload["directory"])
        try:
            entries = read_manifest(directory, offer.payload["manifest"])
        except (FileNotFoundError, ValueError) as error:
            problem = str(error) if isinstance(error, ValueError) else f"{directory} is missing or not whole"
            raise TransportError(NAME, f"version {offer.version}: {problem}") from error
        for problem in problems(directory, entries, self._context.verify):
            raise TransportError(NAME, f"version {offer.version}: {problem}")
        return DiskSource(offer, directory)

    def release(self, version: WeightVersion) -> None:
        """Trainer: remove the version's directory."""
        if self._writes and self._directory(version).exists():
            shutil.rmtree(self._directory(version))

    def close(self) -> None:
        """Trainer: remove all directories."""
        if self._writes:
            shutil.rmtree(self._root, ignore_errors=True)

    def _directory(self, version: WeightVersion) -> Path:
        return self._root / str(version)

    def _write(
        self, directory: Path, weights: Iterator[tuple[str, torch.Tensor]], save: Callable[[Path], None]
    ) -> None:
        if self._mechanism == "hf-dir":
            save(directory)
        else:
            write_shards(directory, weights, self._context.bucket_bytes)

    def _take_part(
        self, directory: Path, weights: Iterator[tuple[str, torch.Tensor]], save: Callable[[Path], None]
    ) -> None:
        """Ranks that write nothing: gathering and saving are collective."""
        if self._mechanism == "hf-dir":
            save(directory)
        else:
            drain(weights)


class DiskSource(Source):
    """One version's directory."""

    def __init__(self, offer: WeightOffer, directory: Path) -> None:
        super().__init__(offer)
        self._directory = directory

    def path(self) -> Path:
        """The Hugging Face directory."""
        return self._directory if self.mechanism == "hf-dir" else super().path()

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor of each file, one at a time."""
        for file in sorted(self._directory.glob("*.safetensors")):
            try:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118 - no mapping, it cannot be iterated
                        yield name, opened.get_tensor(name)
            except (SafetensorError, FileNotFoundError) as error:
                raise TransportError(NAME, f"version {self.offer.version}: {file}: {error}") from error


def _flush(directory: Path) -> None:
    for path in (*directory.rglob("*"), directory):
        _fsync(path)


def _fsync(path: Path) -> None:
    """Also of a directory: its entries are data that a crash can lose."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
