"""How many tokens a forward pass may have when the spec leaves it open."""

from __future__ import annotations

from typing import Any

import torch

from areal_plugins.builtin.trainer.activations import ON_PROCESSORS, activation_bytes, tokens_that_fit

_SHARE = 0.3
"""Share of an accelerator's free memory that activations may take."""


def token_budget(config: Any, width: int, checkpointing: bool, device: torch.device) -> int:
    """Tokens whose activations (`width` bytes a number) fit; `config` is the model's own."""
    text = config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    kept = activation_bytes(text.num_hidden_layers, text.hidden_size, inner, width, checkpointing)
    return tokens_that_fit(_memory(device), kept)


def _memory(device: torch.device) -> int:
    if device.type == "cpu":
        return ON_PROCESSORS
    free, _ = torch.get_device_module(device).mem_get_info(device)
    return int(free * _SHARE)
