"""A transport within one process, which can be told to fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from areal_core.contexts import TransportContext
from areal_core.data import WeightOffer, WeightVersion
from areal_core.errors import TransportError
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import Script

_SHELVES: defaultdict[str, dict[WeightVersion, dict[str, Any]]] = defaultdict(dict)


def make(options: Script, context: TransportContext) -> MockTransport:
    """The factory."""
    return MockTransport(options, context)


class MockTransport:
    """One end. Both find each other by the folder that they were given to work in."""

    def __init__(self, options: Script, context: TransportContext) -> None:
        self._key, self._side = str(context.work), context.side
        self._conduct = Conduct(options, partial(TransportError, "mock"))

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, Any]], save: Callable[[Path], None]
    ) -> WeightOffer:
        self._conduct.act_here("publish")
        _SHELVES[self._key][version] = {name: tensor.copy() for name, tensor in weights}
        return WeightOffer(version, "mock", "tensors", payload={"shelf": self._key})

    def receive(self, offer: WeightOffer) -> MockSource:
        self._conduct.act_here("receive")
        if offer.version not in _SHELVES[self._key]:
            raise TransportError("mock", f"version {offer.version} is not there (any more)")
        return MockSource(_SHELVES[self._key][offer.version])

    def release(self, version: WeightVersion) -> None:
        self._conduct.act_here("release")
        if self._side == "trainer":
            _SHELVES[self._key].pop(version, None)

    def close(self) -> None:
        if self._side == "trainer":
            _SHELVES.pop(self._key, None)


class MockSource:
    """The engine's end."""

    mechanism = "tensors"

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def tensors(self) -> Iterator[tuple[str, Any]]:
        yield from self._tensors.items()

    def path(self) -> Path:
        raise NotImplementedError

    def handle(self) -> Mapping[str, Any]:
        raise NotImplementedError
