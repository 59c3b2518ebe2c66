"""AdamW, and the parameter groups that optimizers are given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from areal_core.contexts import OptimizerContext
from areal_plugins.builtin.trainer import AdamWOptions

_FUSED = {"cpu", "cuda"}
"""Devices with a fused kernel, one pass over memory; elsewhere torch chooses."""


def adamw(options: AdamWOptions, context: OptimizerContext) -> torch.optim.Optimizer:
    """Loshchilov and Hutter, arXiv 1711.05101, equation 12."""
    groups = [dict(group) for group in context.parameters]
    kinds = {parameter.device.type for group in groups for parameter in group["params"]}
    return torch.optim.AdamW(
        groups,
        lr=context.learning_rate,
        betas=options.betas,
        eps=options.eps,
        weight_decay=options.weight_decay,
        fused=True if kinds <= _FUSED else None,
    )


def parameter_groups(parameters: Iterable[nn.Parameter]) -> list[dict[str, Any]]:
    """Matrices, and apart from them vectors (norms, biases), which are never decayed."""
    parameters = list(parameters)
    matrices = [p for p in parameters if p.ndim >= 2]
    vectors = [p for p in parameters if p.ndim < 2]
    groups: list[dict[str, Any]] = []
    if matrices:
        groups.append({"params": matrices})
    if vectors:
        groups.append({"params": vectors, "weight_decay": 0.0})
    return groups
