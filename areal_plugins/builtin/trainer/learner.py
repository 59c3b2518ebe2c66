"""Parameters and the optimizer that moves them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from areal_core.contexts import OptimizerContext, OptimizerPlan
from areal_plugins.builtin.trainer import gradients
from areal_plugins.builtin.trainer.optimizer import parameter_groups


class Learner:
    """Trainable parameters under a fresh optimizer, which runs at `rate` where the plan's own is in force."""

    def __init__(self, parameters: Mapping[str, nn.Parameter], plan: OptimizerPlan, rate: float) -> None:
        self.parameters = list(parameters.values())
        self.optimizer: Any = plan.build(OptimizerContext(parameter_groups(self.parameters), rate))
        self._relative = rate / plan.learning_rate
        self.norm = 0.0

    def measure(self, scale: float) -> float:
        """The gradient's norm, the loss scale taken out."""
        gradients.complete(self.parameters)
        self.norm = gradients.gradient_norm(self.parameters, scale)
        return self.norm

    @torch.no_grad()
    def step(self, rate: float, most: float | None) -> bool:
        """Move by `rate`, the stage's, with the gradient's norm limited to `most`; whether it was over."""
        clipped = gradients.clip(self.parameters, self.norm, most)
        for group in self.optimizer.param_groups:
            group["lr"] = rate * self._relative
        self.optimizer.step()
        return clipped

    def forget(self) -> None:
        """Drop the gradients."""
        for parameter in self.parameters:
            parameter.grad = None
