"""The model's forward pass over a packed step."""

from __future__ import annotations

from typing import Any

import torch

from areal_plugins.builtin.engine.attention import PackedStep
from areal_plugins.builtin.engine.fused import FAMILY, FusedDecoder
from areal_plugins.builtin.engine.kv_cache import KVCache, free_bytes
from areal_plugins.builtin.engine.plan import Plan, side_by_side
from areal_plugins.builtin.engine.product import Product, prepack


class Runner:
    """A transformers model whose attention is `attention.attend`, and the cache it writes.

    `longest`: most positions of a sequence; `windows`: how far back each layer looks.
    """

    def __init__(self, model: Any, cache: KVCache, longest: int) -> None:
        self.model, self.cache = model, cache
        self.windows: dict[int, int | None] = {}
        self._fused = FusedDecoder(model, longest) if type(model).__name__ in FAMILY else None
        products = self._fused.products if self._fused else _products(model)
        self._packed = prepack(products, free_bytes(cache.device))

    def new_weights(self) -> None:
        """The model's weights have changed."""
        for product in self._packed:
            product.pack()

    def logits(self, plan: Plan) -> torch.Tensor:
        """The logits [S, V] that the plan's rows draw from."""
        device = self.cache.device
        tokens, positions, rows = (
            torch.from_numpy(column).to(device, torch.int64) for column in (plan.tokens, plan.positions, plan.rows)
        )
        step = PackedStep(self.cache, rows, positions, plan.runs, side_by_side(plan.chunks), self.windows)
        keep = None if len(plan.keep) == len(plan.tokens) else torch.from_numpy(plan.keep).to(device)
        logits = (self._fused.logits if self._fused else self._logits)(tokens, positions, keep, step)
        shared = len(plan.draw) != len(plan.keep)
        return logits[torch.from_numpy(plan.draw).to(device)] if shared else logits

    def _logits(
        self, tokens: torch.Tensor, positions: torch.Tensor, keep: torch.Tensor | None, step: PackedStep
    ) -> torch.Tensor:
        """By transformers' own forward pass."""
        logits: torch.Tensor = self.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if keep is None else keep,
            areal_step=step,
        ).logits[0]
        return logits


def _products(model: Any) -> list[Product]:
    """The linear layers of a model, which compute by them from now on."""
    layers = [module for module in model.modules() if type(module) is torch.nn.Linear]
    products = [Product(layer.weight, layer.bias) for layer in layers]
    for layer, product in zip(layers, products, strict=True):
        layer.forward = product  # type: ignore[assignment,method-assign]
    return products
