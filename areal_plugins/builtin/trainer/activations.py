"""What a forward pass keeps for the backward pass. Light: no torch."""

from __future__ import annotations

ON_PROCESSORS = 2 << 30
"""Bytes of activations of a micro-batch on a processor, whose caches large ones do not help."""

_LEAST, _MOST = 512, 32768


def activation_bytes(layers: int, hidden: int, inner: int, width: int, checkpointing: bool) -> int:
    """Bytes a token, `width` bytes a number; with checkpointing only a layer's input, and one layer in full."""
    layer = (16 * hidden + 4 * inner) * width
    return layers * hidden * width + layer if checkpointing else layers * layer


def tokens_that_fit(memory: int, kept: int) -> int:
    """Tokens of a micro-batch whose activations take `memory` bytes, `kept` each."""
    return int(min(max(memory // kept, _LEAST), _MOST))
