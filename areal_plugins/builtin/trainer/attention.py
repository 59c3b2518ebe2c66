"""Attention over packed tokens, registered with transformers as `areal_packed`.

The model's linear layers see X packed tokens as one sequence; only here are they spread over the rows
of a `Grid`, which a forward pass brings along as the keyword `grid`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own short name
from torch import Tensor
from transformers import AttentionInterface

from areal_plugins.builtin.trainer.grid import Grid, Indices

NAME = "areal_packed"

_SMALL = 1 << 19
"""Scores up to which a plain softmax beats the fused kernel's set-up."""


def packed_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    grid: Grid | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in each layer: `query` [1, H * F, X, D], `key` and `value` [1, H, X, D].

    Returns:
        [1, X, H * F, D], and no attention weights.

    Raises:
        ValueError: the layer wants something that this attention does not do; names it.

    """
    _check(module, grid, others)
    assert grid is not None
    dtype, heads, size = value.dtype, key.shape[1], value.shape[-1]
    fold = query.shape[1] // heads
    indices = grid.indices(heads)
    q, k, v = Spread.apply(  # type: ignore[no-untyped-call]
        query.to(dtype).transpose(1, 2).reshape(-1, fold * query.shape[-1]),
        key.to(dtype).transpose(1, 2).reshape(-1, key.shape[-1]),
        value.transpose(1, 2).reshape(-1, size),
        indices,
    )
    rows = (grid.rows, heads)
    q = q.view(*rows, grid.queries * fold, -1)
    k, v = k.view(*rows, grid.keys, -1), v.view(*rows, grid.keys, -1)
    scale = q.shape[-1] ** -0.5 if scaling is None else scaling
    mask = grid.mask(fold, sliding_window, dtype)
    if softcap is not None or q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2] <= _SMALL:
        out = _softmax_attention(q, k, v, mask, scale, softcap, dropout)
    else:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout, scale=scale)
    packed: Tensor = Collect.apply(out.reshape(-1, fold * size), indices)  # type: ignore[no-untyped-call]
    return packed.view(1, -1, heads * fold, size), None


def _softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, softcap: float | None, dropout: float
) -> Tensor:
    scores = torch.matmul(q * scale, k.transpose(-1, -2))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    weights = (scores + mask).softmax(dim=-1)
    if dropout:
        weights = F.dropout(weights, dropout)
    return torch.matmul(weights, v)


class Spread(torch.autograd.Function):
    """Packed (token, head) rows to attention rows; a common key's gradient is summed over its group."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, indices: Indices) -> tuple[Tensor, ...]:
        ctx.indices = indices
        return (
            query.index_select(0, indices.query),
            key.index_select(0, indices.key),
            value.index_select(0, indices.key),
        )

    @staticmethod
    def backward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor | None, ...]:
        indices: Indices = ctx.indices
        return query.index_select(0, indices.query_place), _gather(key, indices), _gather(value, indices), None


class Collect(torch.autograd.Function):
    """Attention rows back to packed (token, head) rows; padding gets no gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Indices) -> Tensor:
        ctx.indices = indices
        return rows.index_select(0, indices.query_place)

    @staticmethod
    def backward(ctx: Any, packed: Tensor) -> tuple[Tensor | None, ...]:
        indices: Indices = ctx.indices
        return packed.index_select(0, indices.query).index_fill_(0, indices.query_padding, 0.0), None


def _gather(grad: Tensor, indices: Indices) -> Tensor:
    packed = grad.index_select(0, indices.key_place)
    if indices.common:
        groups, members, heads, keys = indices.shape
        summed = grad.view(groups, members, heads, keys, -1)[:, :, :, : indices.common].sum(dim=1)
        chosen = summed.reshape(-1, summed.shape[-1]).index_select(0, indices.common_place)
        packed.index_copy_(0, indices.common_token, chosen)
    return packed


def _check(module: torch.nn.Module, grid: Grid | None, others: dict[str, Any]) -> None:
    layer = type(module).__name__
    if grid is None:
        raise ValueError(
            f"{layer} does not hand keywords on to its attention, so that packed batches cannot be trained"
        )
    for name in ("s_aux", "position_bias", "head_mask"):
        if others.get(name) is not None:
            raise ValueError(f"{layer} uses {name!r} in its attention, which packed batches do not support")
    if getattr(module, "is_causal", True) is False:
        raise ValueError(f"{layer} is not causal")


AttentionInterface.register(NAME, packed_attention)
