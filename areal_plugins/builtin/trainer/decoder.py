"""Decoders of the Llama family, read in fewer passes over memory than transformers' modules take.

It is the same computation on the same modules' parameters (adapters included); a model of any other
family runs through transformers itself. `model.check_packing` holds one against the other at the start.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own short name
from attrs import frozen
from torch import Tensor

from areal_plugins.builtin.trainer.attention import attend
from areal_plugins.builtin.trainer.grid import Grid

_FAMILY = {"llama", "qwen2", "qwen3"}


def is_known(backbone: Any) -> bool:
    """Whether `decode` reads this backbone."""
    return backbone.config.model_type in _FAMILY and backbone.config.hidden_act == "silu"


def decode(backbone: Any, tokens: Tensor, positions: Tensor, grid: Grid) -> Tensor:
    """[X, C] last hidden states of packed `tokens` [1, X]."""
    x = backbone.embed_tokens(tokens[0])
    turn = _turn(*backbone.rotary_emb(x, positions))
    for layer in backbone.layers:
        if layer.gradient_checkpointing and layer.training and torch.is_grad_enabled():
            x = torch.utils.checkpoint.checkpoint(_layer, layer, x, turn, grid, use_reentrant=False)
        else:
            x = _layer(layer, x, turn, grid)
    return _norm(x, backbone.norm)


@frozen(eq=False)
class Turn:
    """Rotary embedding as `x * cos + swap(x) * sin`, [X, 1, D] both; `swap` exchanges the halves of a head."""

    cos: Tensor
    sin: Tensor


def _layer(layer: Any, x: Tensor, turn: Turn, grid: Grid) -> Tensor:
    attention, mlp = layer.self_attn, layer.mlp
    x = x + _attention(attention, _norm(x, layer.input_layernorm), turn, grid)
    h = _norm(x, layer.post_attention_layernorm)
    y: Tensor = x + mlp.down_proj(F.silu(mlp.gate_proj(h)) * mlp.up_proj(h))
    return y


def _attention(module: Any, x: Tensor, turn: Turn, grid: Grid) -> Tensor:
    q, k, v = module.q_proj(x), module.k_proj(x), module.v_proj(x)
    size = module.head_dim
    if hasattr(module, "q_norm"):
        q, k = _norm(q.view(-1, size), module.q_norm), _norm(k.view(-1, size), module.k_norm)
    q, k = (_rotate(part.view(len(x), -1, size), turn) for part in (q, k))
    window = getattr(module, "sliding_window", None)
    out = attend(q.flatten(1), k.flatten(1), v, grid, k.shape[1], module.scaling, window)
    projected: Tensor = module.o_proj(out)
    return projected


def _norm(x: Tensor, module: Any) -> Tensor:
    y: Tensor = _RmsNorm.apply(x, module.weight, module.variance_epsilon)  # type: ignore[no-untyped-call]
    return y


def _rotate(x: Tensor, turn: Turn) -> Tensor:
    y: Tensor = _Rotary.apply(x.to(turn.cos.dtype), turn)  # type: ignore[no-untyped-call]
    return y


def _turn(cos: Tensor, sin: Tensor) -> Turn:
    half = sin.shape[-1] // 2
    return Turn(cos[0, :, None], torch.cat((-sin[0, :, None, :half], sin[0, :, None, half:]), dim=-1))


class _RmsNorm(torch.autograd.Function):
    """`w x / rms(x)`; with u = x / rms(x) the gradient of x is `(g w - u mean(g w u)) / rms(x)`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        scale = wide.square().mean(dim=-1, keepdim=True).add_(eps).rsqrt_()
        unit = (wide * scale).to(x.dtype)
        ctx.save_for_backward(unit, scale, weight)
        return unit * weight

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        unit, scale, weight = ctx.saved_tensors
        along = grad * unit
        to_weight = along.sum(dim=0) if ctx.needs_input_grad[1] else None
        mean = torch.mv(along, weight).unsqueeze(-1)
        to_unit = torch.addcmul(grad * weight, unit, mean, value=-1.0 / unit.shape[-1])
        return to_unit.mul(scale).to(grad.dtype), to_weight, None


class _Rotary(torch.autograd.Function):
    """The gradient of a rotation is turned back by the same angle."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, turn: Turn) -> Tensor:
        ctx.turn = turn
        return _rotated(x, turn.cos, turn.sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _rotated(grad, ctx.turn.cos, ctx.turn.sin.neg()), None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    swapped = torch.cat((x[..., half:], x[..., :half]), dim=-1)
    return torch.addcmul(x * cos, swapped, sin)
