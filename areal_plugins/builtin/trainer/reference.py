"""A frozen policy: a copy of the trainable parameters that can stand in for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Snapshot:
    """The values of `parameters` at one moment. With adapters it holds the adapters alone."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = parameters
        self.values: dict[str, Tensor] = {name: p.detach().clone() for name, p in parameters.items()}

    @torch.no_grad()
    def renew(self) -> None:
        """Take the values of now."""
        for name, value in self.values.items():
            value.copy_(self._parameters[name])

    @contextmanager
    def active(self) -> Iterator[None]:
        """The model computes with these values. Storage is swapped, nothing is copied."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for name, parameter in self._parameters.items():
            parameter.data, self.values[name] = self.values[name], parameter.data
