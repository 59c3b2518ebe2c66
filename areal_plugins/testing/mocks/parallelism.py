"""A way to spread a model that leaves it as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import ParallelismOptions


def make(options: ParallelismOptions, _context: object) -> MockParallelism:
    """The factory."""
    return MockParallelism(options)


class MockParallelism:
    """Asks that one size of the model divides."""

    def __init__(self, options: ParallelismOptions) -> None:
        self._options, self._conduct = options, Conduct(options)

    def apply(self, model: Any, mesh: Any) -> Any:
        self._conduct.act_here("apply")
        return model

    def divides(self, shape: Mapping[str, int], size: int) -> Iterator[str]:
        self._conduct.act_here("divides")
        heads = shape.get(self._options.heads, 0)
        if heads % size:
            yield f"{self._options.heads} {heads} does not divide by {size}"
