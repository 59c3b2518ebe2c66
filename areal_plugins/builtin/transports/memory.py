"""Trainer and engine in one process: weights are handed over as tensors.

A version is a copy. The trainer's own tensors change with its next step, perhaps while an engine
still reads; so they are copied once when they are published, on the device they are on, into
tensors that an earlier version has given back where there are any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from areal_core.contexts import TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import TransportError
from areal_plugins.builtin.transports.source import Source, expect
from areal_plugins.builtin.transports.tensor import describe, drain, reproduce

NAME = "memory"

_SHELVES: dict[str, dict[WeightVersion, dict[str, torch.Tensor]]] = {}
"""What the trainers of this process have published, by trainer."""


class MemoryTransport:
    """`protocols.Transport` within one process; steady publishing allocates nothing."""

    def __init__(self, options: object, context: TransportContext) -> None:
        self._stores = context.side == "trainer" and context.place.rank == 0
        self._key = f"{os.getpid()}/{id(self)}"
        self._spare: list[dict[str, torch.Tensor]] = []
        if self._stores:
            _SHELVES[self._key] = {}

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, torch.Tensor]], save: Callable[[Path], None]
    ) -> WeightOffer:
        """Copy `weights`."""
        if not self._stores:
            drain(weights)
            return WeightOffer(version, NAME, "tensors")
        self.release(version)
        old = self._spare.pop() if self._spare else {}
        kept = {name: reproduce(tensor, old.pop(name, None)) for name, tensor in weights}
        _SHELVES[self._key][version] = kept
        described = tuple(describe(name, tensor) for name, tensor in kept.items())
        return WeightOffer(version, NAME, "tensors", described, {"process": os.getpid(), "shelf": self._key})

    def receive(self, offer: WeightOffer) -> MemorySource:
        """The tensors that `offer` names.

        Raises:
            TransportError: they were published in another process, or have been released.

        """
        expect(NAME, offer)
        if offer.payload.get("process") != os.getpid():
            problem = "it joins a trainer and engines in one process; use shm between processes, disk between hosts"
            raise TransportError(NAME, problem)
        _find(offer)
        return MemorySource(offer)

    def release(self, version: WeightVersion) -> None:
        """Keep the version's tensors to write the next one into."""
        kept = _SHELVES.get(self._key, {}).pop(version, None)
        if kept is not None:
            self._spare.append(kept)

    def close(self) -> None:
        """Free all versions."""
        self._spare.clear()
        _SHELVES.pop(self._key, None)


class MemorySource(Source):
    """Tensors of one version."""

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter; a later version is written into the same memory once this one is released."""
        yield from _find(self.offer).items()


def _find(offer: WeightOffer) -> dict[str, torch.Tensor]:
    tensors = _SHELVES.get(offer.payload["shelf"], {}).get(offer.version)
    if tensors is None:
        raise TransportError(NAME, f"version {offer.version} was released, or its trainer has ended")
    return tensors
