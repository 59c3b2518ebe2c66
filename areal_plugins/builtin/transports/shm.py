"""Trainer and engines on one host: weights cross in shared memory.

The trainer writes each version into a segment that is mapped once and written again and again;
engines map it once too and read tensors in place. A version takes one copy and, with `verify`, one
checksum on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from areal_core.contexts import TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_plugins import InputError, TransportError
from areal_plugins.builtin.ownership import sweep
from areal_plugins.builtin.transports import ShmOptions
from areal_plugins.builtin.transports.publisher import PREFIX, Publisher
from areal_plugins.builtin.transports.segment import Attachment
from areal_plugins.builtin.transports.source import Source, expect
from areal_plugins.builtin.transports.tensor import drain

NAME = "shm"


class ShmTransport:
    """`protocols.Transport` over shared memory. Segments of released versions take the next ones."""

    def __init__(self, options: ShmOptions, context: TransportContext) -> None:
        root = Path(options.directory)
        if not root.is_dir():
            raise InputError(f"weights.shm.directory: {root}", "there is no such directory", "use the transport disk")
        self._root, self._context = root, context
        self._mechanism = context.mechanism or "tensors"
        self._publisher = Publisher(root, context) if context.side == "trainer" and not context.place.rank else None
        self._attached: dict[Path, Attachment] = {}

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, torch.Tensor]], save: Callable[[Path], None]
    ) -> WeightOffer:
        """Copy `weights` into a segment that no unreleased version is in.

        Raises:
            TransportError: shared memory is full.

        """
        if self._publisher is None:
            drain(weights)
            return WeightOffer(version, NAME, self._mechanism)
        tensors, payload = self._publisher.publish(version, weights)
        return WeightOffer(version, NAME, self._mechanism, tensors, payload)

    def receive(self, offer: WeightOffer) -> ShmSource:
        """Map the segment, or find it mapped.

        Raises:
            TransportError: the segment is gone, too short, holds another version, or its bytes differ.

        """
        expect(NAME, offer)
        source = ShmSource(offer, self._attach(offer))
        source.check()
        if self._context.verify:
            source.verify()
        return source

    def release(self, version: WeightVersion) -> None:
        """Trainer: the version's segment may be written again. Engines keep theirs mapped for the next version."""
        if self._publisher is not None:
            self._publisher.release(version)

    def close(self) -> None:
        """Unmap, and remove the segments that this end made; an engine, those of a trainer that was killed."""
        self._attached.clear()
        if self._publisher is not None:
            self._publisher.close()
        else:
            sweep(self._root, PREFIX)

    def _attach(self, offer: WeightOffer) -> Attachment:
        path, size = Path(offer.payload["segment"]), offer.payload["size"]
        # A trainer that restarts makes new segments; what an older one left mapped is freed here.
        self._attached = {known: attachment for known, attachment in self._attached.items() if known.exists()}
        attached = self._attached.get(path)
        if attached is None or attached.size < size:
            attached = self._attached[path] = _attach(offer, path, size)
        return attached


class ShmSource(Source):
    """One version in a mapped segment."""

    def __init__(self, offer: WeightOffer, attached: Attachment) -> None:
        super().__init__(offer)
        self._attached = attached

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Views into shared memory, valid until the trainer releases the version.

        Raises:
            TransportError: the trainer wrote something else there meanwhile.

        """
        self.check()
        for info, offset in zip(self.offer.tensors, self.offer.payload["offsets"], strict=True):
            yield info.name, self._attached.tensor(info, offset)
        self.check()

    def handle(self) -> Mapping[str, Any]:
        """`segment` (path), `size` (bytes to map), `stamp`, and each tensor's `name`, `dtype`, `shape`, `offset`.

        Whoever maps it finds the stamp as a little-endian 64-bit integer at byte 8; another one there
        means that the version was overwritten.
        """
        payload = self.offer.payload
        tensors = [
            {"name": info.name, "dtype": info.dtype, "shape": info.shape, "offset": offset}
            for info, offset in zip(self.offer.tensors, payload["offsets"], strict=True)
        ]
        return {"segment": payload["segment"], "size": payload["size"], "stamp": payload["stamp"], "tensors": tensors}

    def check(self) -> None:
        """Refuse a segment that does not hold this version (any more)."""
        if self._attached.stamp != self.offer.payload["stamp"]:
            problem = f"version {self.offer.version} is not whole in {self.offer.payload['segment']}, or overwritten"
            raise TransportError(NAME, problem)

    def verify(self) -> None:
        """Compare checksums; names the first parameter that differs."""
        payload = self.offer.payload
        for info, offset, expected in zip(self.offer.tensors, payload["offsets"], payload["checksums"], strict=True):
            if self._attached.checksum(info, offset) != expected:
                problem = f"version {self.offer.version}: the bytes of {info.name} are damaged (checksums differ)"
                raise TransportError(NAME, problem)


def _attach(offer: WeightOffer, path: Path, size: int) -> Attachment:
    try:
        return Attachment(path, size)
    except FileNotFoundError:
        raise TransportError(NAME, f"version {offer.version}: {path} is gone; its trainer has ended") from None
    except ValueError as error:
        raise TransportError(NAME, f"version {offer.version} is truncated: {error}") from error
