"""Large linear layers on a CPU: their weights laid out once for oneDNN, instead of in every call.

A decode step multiplies a few dozen rows by weights that no cache holds, and the general matrix
product then spends up to half its time on rearranging them. The rearranged copy takes as much
memory as the weight itself and is made anew after every weight update.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from attrs import define, field

_SMALLEST = 1 << 19
"""Elements of a weight below which a oneDNN call's own cost (30 us) outweighs what it saves."""

_SHARE = 4
"""Copies may take this fraction of the free memory, one part in so many."""


@define(eq=False)
class Prepacked:
    """The layers that compute with a copy of their weight, by `pack`."""

    layers: list[torch.nn.Linear] = field(factory=list)
    copies: dict[torch.nn.Linear, torch.Tensor] = field(factory=dict)

    @torch.no_grad()
    def pack(self) -> None:
        """Copy the weights as they are now."""
        for layer in self.layers:
            self.copies[layer] = torch.ops.mkldnn._reorder_linear_weight(layer.weight, None)

    def forward(self, layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.copies[layer], layer.bias, "none", [], "")  # type: ignore[no-any-return]


def prepack(model: Any, free: int | None) -> Prepacked:
    """Let the large float32 layers of a model on the CPU compute with rearranged weights.

    Copies take at most a quarter of the `free` bytes of memory, or there are none; None is unknown.
    """
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and _gains(module.weight)]
    needed = sum(layer.weight.nbytes for layer in layers)
    packed = Prepacked(layers if free is not None and needed * _SHARE <= free else [])
    packed.pack()
    for layer in packed.layers:
        layer.forward = partial(packed.forward, layer)  # type: ignore[method-assign]
    return packed


def _gains(weight: torch.Tensor) -> bool:
    fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= _SMALLEST
    return fits and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
