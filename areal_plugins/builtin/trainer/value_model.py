"""The critic: what a trajectory will still earn, read off a backbone of its own."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from areal_plugins.builtin.trainer.micro import Micro
from areal_plugins.builtin.trainer.policy import Policy, read


class ValueModel(nn.Module):
    """A copy of the policy's backbone with one output, 0 at the start.

    What the policy has frozen (all but its adapters, under LoRA) is shared, not copied.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        backbone: nn.Module = policy.model.base_model
        frozen = {id(p): p for p in backbone.parameters() if not p.requires_grad}
        self.backbone: nn.Module = copy.deepcopy(backbone, frozen)
        weight = policy.head(1.0).weight
        wide = torch.promote_types(weight.dtype, torch.float32)
        self.head = nn.Linear(weight.shape[1], 1, device=weight.device, dtype=wide)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self._policy = [policy]  # in a list, so that it is not a part of this module

    @property
    def trainable(self) -> dict[str, nn.Parameter]:
        """Parameters that training changes, by name."""
        return {name: p for name, p in self.named_parameters() if p.requires_grad}

    def score(self, micro: Micro) -> Tensor:
        """[t] the value before each trained unit is drawn."""
        hidden = read(self.backbone, micro, self._policy[0].autocast())
        values: Tensor = self.head(hidden.to(self.head.weight.dtype)).squeeze(-1)
        return values
