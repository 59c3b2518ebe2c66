"""Tensors as bytes, and bytes as tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from areal_core.data import TensorInfo


def describe(name: str, tensor: torch.Tensor) -> TensorInfo:
    """The record of `tensor`, which stands under `name`."""
    return TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def view(memory: torch.Tensor, info: TensorInfo, offset: int) -> torch.Tensor:
    """The tensor that `info` describes, at `offset` of `memory` ([N] uint8); nothing is copied.

    `offset` must be a multiple of the element size.
    """
    dtype: torch.dtype = getattr(torch, info.dtype)
    return memory[offset : offset + nbytes(info)].view(dtype).view(info.shape)


def nbytes(info: TensorInfo) -> int:
    """Bytes of the tensor's elements."""
    dtype: torch.dtype = getattr(torch, info.dtype)
    return torch.Size(info.shape).numel() * dtype.itemsize


def reproduce(tensor: torch.Tensor, spare: torch.Tensor | None) -> torch.Tensor:
    """A copy of `tensor`, in `spare` where that is of the same kind; contiguous, without gradient."""
    if spare is not None and _alike(tensor, spare):
        return spare.copy_(tensor.detach())
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def drain(weights: Iterator[tuple[str, Any]]) -> None:
    """Take all of `weights` and keep none: gathering them is collective, every rank takes part."""
    for _ in weights:
        pass


def _alike(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return (tensor.shape, tensor.dtype, tensor.device) == (other.shape, other.dtype, other.device)
