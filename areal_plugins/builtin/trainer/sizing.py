"""How many tokens a forward pass may have when the spec leaves it open."""

from __future__ import annotations

from typing import Any

import torch

_ACTIVATIONS = 2 << 30
"""Bytes of activations of a micro-batch on a processor, whose caches large ones do not help."""

_SHARE = 0.3
"""Share of an accelerator's free memory that activations may take."""

_LEAST, _MOST = 512, 32768


def token_budget(config: Any, width: int, checkpointing: bool, device: torch.device) -> int:
    """Tokens whose activations (`width` bytes a number) fit; `config` is the model's own."""
    text = config.get_text_config()
    inner = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    layer = (16 * text.hidden_size + 4 * inner) * width
    kept = (
        text.num_hidden_layers * text.hidden_size * width + layer if checkpointing else text.num_hidden_layers * layer
    )
    return int(min(max(_memory(device) // kept, _LEAST), _MOST))


def _memory(device: torch.device) -> int:
    if device.type == "cpu":
        return _ACTIVATIONS
    free, _ = torch.get_device_module(device).mem_get_info(device)
    return int(free * _SHARE)
