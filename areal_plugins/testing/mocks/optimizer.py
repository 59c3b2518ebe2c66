"""The simplest optimizer that torch takes for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from areal_core.contexts import OptimizerContext
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import Script


def make(options: Script, context: OptimizerContext) -> SignDescent:
    """The factory."""
    return SignDescent(options, context)


class SignDescent(torch.optim.Optimizer):
    """Every number moves by the learning rate against the sign of its gradient; nothing is remembered."""

    def __init__(self, options: Script, context: OptimizerContext) -> None:
        super().__init__([dict(group) for group in context.parameters], {"lr": context.learning_rate})
        self._conduct = Conduct(options)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]  # no closures
        self._conduct.act_here("step")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad.sign(), alpha=group["lr"])
