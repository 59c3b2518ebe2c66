"""The memory of an accelerator, by the figures of its own torch backend (`torch.cuda`, `torch.npu`, ...)."""

from __future__ import annotations

from typing import Any

import torch


def share(device: torch.device) -> float | None:
    """The share in use, by whomever; None for the processor, and where the backend does not say.

    What torch keeps for later in this process does not count: it gives that back by itself before it fails.
    """
    backend = _backend(device)
    if not hasattr(backend, "mem_get_info"):
        return None
    free, total = backend.mem_get_info(device)
    kept = backend.memory_reserved(device) - backend.memory_allocated(device)
    return 1.0 - float(free + kept) / float(total)


def empty_cache(device: torch.device) -> None:
    """Give back what torch keeps for later."""
    empty = getattr(_backend(device), "empty_cache", None)
    if empty is not None:
        empty()


def _backend(device: torch.device) -> Any:
    return None if device.type == "cpu" else getattr(torch, device.type, None)
