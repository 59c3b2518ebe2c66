"""Decoders of the Llama family in fewer and larger operations than transformers takes.

A decode step of a small model is bound by the number of operations, not by their size. Here the
projections that read the same input are one product, and queries and keys are rotated together;
the step takes half the time. The model's parameters become views of the joined weights, so that
replacing them in place replaces these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own spelling)
from attrs import frozen

from areal_plugins.builtin.engine.attention import PackedStep, Scoring, attend_packed
from areal_plugins.builtin.engine.product import Product

FAMILY = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""The transformers models of which this is the computation."""


@frozen(eq=False)
class Norm:
    """RMSNorm (arXiv:1910.07467) over the last axis: torch's own takes twice the time on a CPU."""

    weight: torch.Tensor
    least: torch.Tensor
    share: float

    @classmethod
    def of(cls, norm: Any) -> Norm:
        weight = norm.weight
        precise = torch.promote_types(weight.dtype, torch.float32)
        least = torch.full((), norm.variance_epsilon**0.5, dtype=precise, device=weight.device)
        return cls(weight, least, weight.numel() ** -0.5)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        length = torch.linalg.vector_norm(x, 2, -1, True, dtype=self.least.dtype)
        size = length.mul_(self.share).hypot_(self.least)  # the root of: mean square plus epsilon
        normed: torch.Tensor = (x / size).to(x.dtype).mul_(self.weight)
        return normed


@frozen(eq=False)
class Layer:
    """One decoder layer of a transformers model, its projections joined."""

    index: int
    before_attention: Norm
    query_key_value: Product
    of_heads: tuple[Norm, Norm] | None
    scoring: Scoring
    output: Product
    before_mlp: Norm
    gate_up: Product
    activation: Callable[[torch.Tensor], torch.Tensor]
    down: Product
    heads: int
    key_heads: int
    head_dim: int

    @classmethod
    def of(cls, layer: Any) -> Layer:
        attention, mlp, size = layer.self_attn, layer.mlp, layer.self_attn.head_dim
        by_head = hasattr(attention, "q_norm")
        return cls(
            index=attention.layer_idx,
            before_attention=Norm.of(layer.input_layernorm),
            query_key_value=join(attention.q_proj, attention.k_proj, attention.v_proj),
            of_heads=(Norm.of(attention.q_norm), Norm.of(attention.k_norm)) if by_head else None,
            scoring=Scoring(attention.scaling, getattr(attention, "sliding_window", None)),
            output=join(attention.o_proj),
            before_mlp=Norm.of(layer.post_attention_layernorm),
            gate_up=join(mlp.gate_proj, mlp.up_proj),
            activation=F.silu if isinstance(mlp.act_fn, torch.nn.SiLU) else mlp.act_fn,
            down=join(mlp.down_proj),
            heads=attention.q_proj.out_features // size,
            key_heads=attention.k_proj.out_features // size,
            head_dim=size,
        )

    def __call__(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, step: PackedStep) -> torch.Tensor:
        """The layer on T tokens h [T, C], which it may overwrite; cos, sin [T, 1, D]."""
        h = self.output.onto(h, self._attention(self.before_attention(h), cos, sin, step))
        gate, up = self.gate_up(self.before_mlp(h)).chunk(2, -1)
        return self.down.onto(h, self.activation(gate).mul_(up))

    def _attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, step: PackedStep) -> torch.Tensor:
        every = self.query_key_value(x).view(-1, self.heads + 2 * self.key_heads, self.head_dim)
        plain, v = every.split_with_sizes((self.heads + self.key_heads, self.key_heads), 1)
        if self.of_heads is not None:
            parts = plain.split_with_sizes((self.heads, self.key_heads), 1)
            plain = torch.cat([norm(part) for norm, part in zip(self.of_heads, parts, strict=True)], 1)
        rotated = (plain * cos).addcmul_(plain.roll(self.head_dim // 2, -1), sin)
        q, k = rotated.split_with_sizes((self.heads, self.key_heads), 1)
        return attend_packed(step, self.index, q, k, v, self.scoring).reshape(len(x), -1)


class FusedDecoder:
    """The whole model. `longest`: most positions; rotations are tabulated for them."""

    def __init__(self, model: Any, longest: int) -> None:
        self._embeddings = model.model.embed_tokens.weight
        self.layers = [Layer.of(layer) for layer in model.model.layers]
        self._norm = Norm.of(model.model.norm)
        self.head = join(model.lm_head)
        like = self._norm.weight
        cos, sin = model.model.rotary_emb(like, torch.arange(longest, device=like.device)[None])
        self._cos, self._sin = cos[0, :, None], sin[0, :, None].clone()
        self._sin[..., : sin.shape[-1] // 2].neg_()  # rotating by halves: (x1, x2) -> (-x2, x1), as a roll

    @property
    def products(self) -> list[Product]:
        return [p for x in self.layers for p in (x.query_key_value, x.output, x.gate_up, x.down)] + [self.head]

    def logits(
        self, tokens: torch.Tensor, positions: torch.Tensor, keep: torch.Tensor | None, step: PackedStep
    ) -> torch.Tensor:
        """Logits [T, V] of tokens [T], or of those at `keep`."""
        h = F.embedding(tokens, self._embeddings)
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        for layer in self.layers:
            h = layer(h, cos, sin, step)
        return self.head(self._norm(h if keep is None else h.index_select(0, keep)))


def join(*layers: torch.nn.Linear) -> Product:
    """One product for layers that read the same input, which become views of it."""
    if len(layers) == 1:
        return Product(layers[0].weight, layers[0].bias)
    product = Product(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        product.bias = torch.cat([layer.bias for layer in layers])
    start = 0
    for layer in layers:
        span = slice(start, start + layer.out_features)
        layer.weight.data = product.weight[span]
        if product.bias is not None:
            layer.bias.data = product.bias[span]
        start = span.stop
    return product
