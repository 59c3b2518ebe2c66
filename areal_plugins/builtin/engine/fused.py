"""Decoders of the Llama family in fewer and larger operations than transformers takes.

A decode step of a small model is bound by the number of operations, not by their size. Here the
projections that read the same input are one product, and queries and keys are rotated together;
the step takes half the time. The model's parameters become views of the joined weights, so that
replacing them in place replaces these.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own spelling)
from attrs import frozen

from areal_plugins.builtin.engine.attention import PackedStep, Scoring, attend_packed
from areal_plugins.builtin.engine.product import Product

FAMILY = ("LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""The transformers models of which this is the computation."""


@frozen(eq=False)
class Layer:
    """One decoder layer of a transformers model, its projections joined."""

    source: Any
    query_key_value: Product
    output: Product
    gate_up: Product
    down: Product
    heads: int
    scoring: Scoring

    @classmethod
    def of(cls, layer: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            source=layer,
            query_key_value=join(attention.q_proj, attention.k_proj, attention.v_proj),
            output=join(attention.o_proj),
            gate_up=join(mlp.gate_proj, mlp.up_proj),
            down=join(mlp.down_proj),
            heads=attention.q_proj.out_features // attention.head_dim,
            scoring=Scoring(attention.scaling, getattr(attention, "sliding_window", None)),
        )

    def __call__(self, h: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, step: PackedStep) -> torch.Tensor:
        """The layer on T tokens h [T, C]; cos, sin [T, 1, D]."""
        h = self.output.onto(h, self._attention(_normed(h, self.source.input_layernorm), cos, sin, step))
        gate, up = self.gate_up(_normed(h, self.source.post_attention_layernorm)).chunk(2, dim=-1)
        return self.down.onto(h, self.source.mlp.act_fn(gate) * up)

    def _attention(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, step: PackedStep) -> torch.Tensor:
        attention = self.source.self_attn
        every = self.query_key_value(x).view(len(x), -1, attention.head_dim)
        values = self.heads + (every.shape[1] - self.heads) // 2
        rotated = every[:, :values]
        if hasattr(attention, "q_norm"):
            q, k = rotated[:, : self.heads], rotated[:, self.heads :]
            rotated = torch.cat([_normed(q, attention.q_norm), _normed(k, attention.k_norm)], dim=1)
        rotated = torch.addcmul(rotated * cos, rotated.roll(attention.head_dim // 2, -1), sin)
        q, k, v = rotated[:, : self.heads], rotated[:, self.heads :], every[:, values:]
        return attend_packed(step, attention.layer_idx, q, k, v, self.scoring).reshape(len(x), -1)


class FusedDecoder:
    """The whole model. `longest`: most positions; rotations are tabulated for them."""

    def __init__(self, model: Any, longest: int) -> None:
        self._base = model.model
        self.layers = [Layer.of(layer) for layer in self._base.layers]
        self.head = join(model.lm_head)
        like = self._base.norm.weight
        cos, sin = self._base.rotary_emb(like, torch.arange(longest, device=like.device)[None])
        self._cos, self._sin = cos[0, :, None], sin[0, :, None].clone()
        self._sin[..., : sin.shape[-1] // 2].neg_()  # rotating by halves: (x1, x2) -> (-x2, x1), as a roll

    @property
    def products(self) -> list[Product]:
        return [p for x in self.layers for p in (x.query_key_value, x.output, x.gate_up, x.down)] + [self.head]

    def logits(
        self, tokens: torch.Tensor, positions: torch.Tensor, keep: torch.Tensor | None, step: PackedStep
    ) -> torch.Tensor:
        """Logits [T, V] of tokens [T], or of those at `keep`."""
        h = F.embedding(tokens, self._base.embed_tokens.weight)
        cos, sin = self._cos[positions], self._sin[positions]
        for layer in self.layers:
            h = layer(h, cos, sin, step)
        return self.head(_normed(h if keep is None else h[keep], self._base.norm))


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


def _normed(x: torch.Tensor, norm: Any) -> torch.Tensor:
    """RMSNorm (arXiv:1910.07467): torch's own takes twice the operations on a CPU."""
    precise = torch.promote_types(x.dtype, torch.float32)
    size = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=precise)
    scale = size.square_().div_(x.shape[-1]).add_(norm.variance_epsilon).rsqrt_()
    normed: torch.Tensor = (x * scale).to(x.dtype) * norm.weight
    return normed
