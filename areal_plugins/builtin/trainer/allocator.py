"""Keeping freed memory: a training step frees and takes the same gigabytes again and again."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt(3)."""

_LARGEST_IN_HEAP = 32 << 20
"""The most that glibc accepts; what is larger is mapped and unmapped one by one."""


def keep_freed_memory() -> None:
    """Tell glibc not to hand freed memory back to the system, which would have to clear every page again.

    Gradients and activations are given back after each step; faulting them in anew takes a tenth of
    the time of a step on a processor. Does nothing where the C library is another one.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_IN_HEAP)
        mallopt(_TRIM_THRESHOLD, -1)
