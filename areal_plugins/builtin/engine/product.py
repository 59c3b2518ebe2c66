"""Matrix products with a model's weights; large ones on a CPU laid out once for oneDNN.

A decode step multiplies a few dozen rows by weights that no cache holds, and the general matrix
product then spends up to half its time on rearranging them. The rearranged copy takes as much
memory as the weight itself and is made anew after every weight update.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own spelling)
from attrs import define

_SMALLEST = 1 << 19
"""Elements of a weight below which a oneDNN call's own cost (30 us) outweighs what it saves."""

_SHARE = 4
"""Copies may take this fraction of the free memory, one part in so many."""


@define(eq=False)
class Product:
    """x [..., K] times `weight` [N, K] transposed, plus `bias` [N]; by way of `packed` where there is one."""

    weight: torch.Tensor
    bias: torch.Tensor | None = None
    packed: torch.Tensor | None = None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return out

    def onto(self, base: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`base` [T, N], in place, plus the product of x [T, K]."""
        if self.packed is None and self.bias is None:
            return base.addmm_(x, self.weight.t())
        return base.add_(self(x))

    @torch.no_grad()
    def pack(self) -> None:
        """Copy the weight as it is now."""
        self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight, None)

    @property
    def gains(self) -> bool:
        """Whether a rearranged copy makes it faster."""
        weight = self.weight
        fits = weight.device.type == "cpu" and weight.dtype == torch.float32 and weight.numel() >= _SMALLEST
        return fits and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]


def prepack(products: Sequence[Product], free: int | None) -> list[Product]:
    """Pack those that gain from it, and name them: they are to be packed again when weights change.

    Copies take at most a quarter of the `free` bytes of memory, or there are none; None is unknown.
    """
    chosen = [product for product in products if product.gains]
    if free is None or _SHARE * sum(product.weight.nbytes for product in chosen) > free:
        return []
    for product in chosen:
        product.pack()
    return chosen
