"""Attention over packed tokens, registered with transformers as `areal_packed`.

A model's linear layers see X packed tokens as one sequence; only here are they spread over the rows
of a `Grid`, which a forward pass brings along as the keyword `grid`. Shapes as in `grid.py`: X tokens,
R rows of Q queries and K keys, H key heads of size D, each shared by F query heads.
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

    The model's own dropout is left out: the engine draws without it.

    Returns:
        [1, X, H * F, D], and no attention weights.

    Raises:
        ValueError: the layer wants something that this attention does not do; names it.

    """
    _check(module, grid, others)
    assert grid is not None
    size = query.shape[-1]
    scale = size**-0.5 if scaling is None else scaling
    q, k, v = (tensor.transpose(1, 2).flatten(2)[0] for tensor in (query, key, value))
    out = attend(q, k, v, grid, key.shape[1], scale, sliding_window, softcap)
    return out.view(1, out.shape[0], query.shape[1], -1), None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    grid: Grid,
    heads: int,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """`query` [X, H * F * D], `key` [X, H * D] and `value` [X, H * E] of `heads` H to [X, H * F * E]."""
    if torch.is_autocast_enabled(value.device.type):
        with torch.autocast(value.device.type, enabled=False):  # all in the format that autocast gave the values
            return attend(query.to(value.dtype), key.to(value.dtype), value, grid, heads, scale, window, softcap)
    size = key.shape[1] // heads
    fold = query.shape[1] // key.shape[1]
    mask = grid.mask(fold, window, query.dtype)
    pairs = (query.reshape(-1, fold * size), key.reshape(-1, size), value.reshape(-1, value.shape[1] // heads))
    if softcap is None and grid.rows * heads * grid.queries * fold * grid.keys <= _SMALL:
        out: Tensor = _Softmax.apply(*pairs, mask, scale, grid.indices(heads))  # type: ignore[no-untyped-call]
        return out.view(query.shape[0], -1)
    q, k, v = _Spread.apply(*pairs, grid.indices(heads))  # type: ignore[no-untyped-call]
    if softcap is None:
        rows = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    else:
        scores = torch.tanh(torch.matmul(q * (scale / softcap), k.transpose(-1, -2))) * softcap
        rows = torch.matmul((scores + mask).softmax(dim=-1), v)
    packed: Tensor = _Collect.apply(rows, grid.indices(heads))  # type: ignore[no-untyped-call]
    return packed.view(query.shape[0], -1)


def _spread(query: Tensor, key: Tensor, value: Tensor, indices: Indices) -> tuple[Tensor, Tensor, Tensor]:
    """(token, head) pairs to q [R, H, Q * F, D], k [R, H, K, D] and v [R, H, K, E]."""
    groups, members, heads, keys = indices.shape
    q = query.index_select(0, indices.query).view(groups * members, heads, -1, key.shape[1])
    k, v = (side.index_select(0, indices.key).view(groups * members, heads, keys, -1) for side in (key, value))
    return q, k, v


def _collect(rows: Tensor, indices: Indices) -> Tensor:
    """[R, H, Q * F, E] to the pairs [X * H, F * E]; padding is left behind."""
    return rows.reshape(len(indices.query), -1).index_select(0, indices.query_place)


def _to_rows(packed: Tensor, indices: Indices) -> Tensor:
    """The gradient of `_collect`, [R * H * Q, F * E]: none for padding."""
    return packed.index_select(0, indices.query).index_fill_(0, indices.query_padding, 0.0)


def _to_keys(grad: Tensor, indices: Indices) -> Tensor:
    """The gradient of keys or values [X * H, D] from that of their rows: a common key's is summed over its group."""
    groups, members, heads, keys = indices.shape
    flat = grad.reshape(groups * members * heads * keys, -1)
    packed = flat.index_select(0, indices.key_place)
    if indices.common:
        summed = flat.view(groups, members, heads, keys, -1)[:, :, :, : indices.common].sum(dim=1)
        chosen = summed.view(-1, flat.shape[1]).index_select(0, indices.common_place)
        packed.index_copy_(0, indices.common_token, chosen)
    return packed


class _Softmax(torch.autograd.Function):
    """Spread, softmax attention and collect in one, for grids so small that every operation counts."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float, indices: Indices
    ) -> Tensor:
        q, k, v = _spread(query, key, value, indices)
        p = torch.matmul(q, k.transpose(-1, -2)).mul_(scale).add_(mask).softmax(dim=-1)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale, ctx.indices = scale, indices
        return _collect(torch.matmul(p, v), indices)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, p = ctx.saved_tensors
        indices: Indices = ctx.indices
        grad = _to_rows(grad, indices).view(*p.shape[:3], -1)
        scores = torch._softmax_backward_data(torch.matmul(grad, v.transpose(-1, -2)), p, -1, p.dtype).mul_(ctx.scale)
        to_query = _collect(torch.matmul(scores, k), indices)
        to_key = _to_keys(torch.matmul(scores.transpose(-1, -2), q), indices)
        to_value = _to_keys(torch.matmul(p.transpose(-1, -2), grad), indices)
        return to_query, to_key, to_value, None, None, None


class _Spread(torch.autograd.Function):
    """`_spread` with its gradient."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, indices: Indices) -> tuple[Tensor, ...]:
        ctx.indices = indices
        return _spread(query, key, value, indices)

    @staticmethod
    def backward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor | None, ...]:
        indices: Indices = ctx.indices
        return _collect(query, indices), _to_keys(key, indices), _to_keys(value, indices), None


class _Collect(torch.autograd.Function):
    """`_collect` with its gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, indices: Indices) -> Tensor:
        ctx.indices, ctx.shape = indices, rows.shape
        return _collect(rows, indices)

    @staticmethod
    def backward(ctx: Any, packed: Tensor) -> tuple[Tensor | None, ...]:
        return _to_rows(packed, ctx.indices).view(ctx.shape), None


def _check(module: torch.nn.Module, grid: Grid | None, others: dict[str, Any]) -> None:
    layer = type(module).__name__
    if grid is None:
        raise ValueError(f"{layer} does not hand keywords on to its attention, which packed batches need")
    for name in ("s_aux", "position_bias", "head_mask"):
        if others.get(name) is not None:
            raise ValueError(f"{layer} uses {name!r} in its attention, which packed batches do not support")
    if getattr(module, "is_causal", True) is False:
        raise ValueError(f"{layer} is not causal")


AttentionInterface.register(NAME, packed_attention)
