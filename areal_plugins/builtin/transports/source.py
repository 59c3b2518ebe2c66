"""The engine's end of a published version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from areal_core.data import WeightOffer
from areal_plugins import TransportError


class Source:
    """`protocols.WeightSource`; transports override the ways that they have."""

    def __init__(self, offer: WeightOffer) -> None:
        self.offer = offer
        self.mechanism: str = offer.mechanism

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """Names and tensors."""
        raise self._lacks("tensors")

    def path(self) -> Path:
        """A directory to load from."""
        raise self._lacks("hf-dir")

    def handle(self) -> Mapping[str, Any]:
        """What an engine needs to fetch the bytes itself."""
        raise self._lacks("shm-handle")

    def _lacks(self, mechanism: str) -> TransportError:
        return TransportError(self.offer.transport, f"version {self.offer.version} was not published as {mechanism}")


def expect(transport: str, offer: WeightOffer) -> None:
    """Refuse an offer that another transport made."""
    if offer.transport != transport:
        raise TransportError(transport, f"version {offer.version} was published by {offer.transport}")
