"""A micro-batch on its device."""

from __future__ import annotations

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from areal_plugins.builtin.trainer.grid import Grid
from areal_plugins.builtin.trainer.packing import Packed


@frozen(eq=False)
class Micro:
    """X packed tokens, `tokens` and `positions` [1, X], and where to read the t trained units."""

    packed: Packed
    grid: Grid
    tokens: Tensor
    positions: Tensor
    predict: Tensor
    targets: Tensor


def place(packed: Packed, device: torch.device) -> Micro:
    """Move `packed` to `device`."""

    def tensor(array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(device)

    return Micro(
        packed=packed,
        grid=Grid(packed.layout, device),
        tokens=tensor(packed.tokens)[None],
        positions=tensor(packed.positions)[None],
        predict=tensor(packed.predict),
        targets=tensor(packed.targets),
    )
