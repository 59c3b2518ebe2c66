"""The model's forward pass over a packed step."""

from __future__ import annotations

from typing import Any

import torch

from areal_plugins.builtin.engine.attention import PackedStep
from areal_plugins.builtin.engine.kv_cache import KVCache, free_bytes
from areal_plugins.builtin.engine.plan import Plan, side_by_side
from areal_plugins.builtin.engine.prepacked import prepack


class Runner:
    """A transformers model whose attention is `attention.attend`, and the cache it writes."""

    def __init__(self, model: Any, cache: KVCache) -> None:
        self.model, self.cache = model, cache
        self._prepacked = prepack(model, free_bytes(cache.device))

    def new_weights(self) -> None:
        """The model's weights have changed."""
        self._prepacked.pack()

    def logits(self, plan: Plan) -> torch.Tensor:
        """The logits [S, V] that the plan's rows draw from."""
        device = self.cache.device
        tokens, positions, rows = (
            torch.from_numpy(column).to(device, torch.int64) for column in (plan.tokens, plan.positions, plan.rows)
        )
        step = PackedStep(self.cache, rows, positions, plan.runs, side_by_side(plan.chunks))
        every = len(plan.keep) == len(plan.tokens)
        logits: torch.Tensor = self.model(
            input_ids=tokens[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=0 if every else torch.from_numpy(plan.keep).to(device),
            areal_step=step,
        ).logits[0]
        shared = len(plan.draw) != len(plan.keep)
        return logits[torch.from_numpy(plan.draw).to(device)] if shared else logits
