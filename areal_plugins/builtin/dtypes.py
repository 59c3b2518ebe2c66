"""Number formats: which one a device computes fast in."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch

from areal_plugins import InputError

_NAMED = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16", "svebf16"})
"""Flags in `/proc/cpuinfo` of processors that multiply bfloat16 in hardware (x86-64 and Arm)."""


def resolve_dtype(name: str, device: str) -> torch.dtype:
    """The torch dtype called `name`; `auto` is what `device` (`cpu`, `cuda:1`, `npu`) does fast.

    A processor that has no bfloat16 instructions emulates them about a hundred times slower than
    float32, so `auto` asks for the instruction set. Accelerators take bfloat16 where they have it.

    Raises:
        InputError: `name` is no number format; names the ones there are.

    """
    if name == "auto":
        return torch.bfloat16 if _computes_bfloat16(torch.device(device).type) else torch.float32
    if name not in _NAMED:
        raise InputError("model.dtype", f"{name!r} is no number format", f"one of auto, {', '.join(_NAMED)}")
    return _NAMED[name]


def _computes_bfloat16(kind: str) -> bool:
    if kind == "cpu":
        return bool(cpu_flags() & _BFLOAT16_FLAGS)
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return True


@cache
def cpu_flags(path: str = "/proc/cpuinfo") -> frozenset[str]:
    """The processor's instruction-set flags; none where the system does not list them."""
    file = Path(path)
    if not file.exists():
        return frozenset()
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        key, _, flags = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(flags.split())
    return frozenset()
