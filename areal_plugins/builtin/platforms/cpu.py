"""The processor as a platform."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from areal_plugins.protocols import Place


class Cpu:
    """One core counts as one device."""

    def count(self) -> int:
        return os.cpu_count() or 1

    def missing(self) -> str | None:
        return None

    def environment(self, place: Place) -> Mapping[str, str]:
        """Thread pools are sized by the worker's threads, so that two workers do not fight over two cores."""
        threads = str(place.threads)
        return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)


def make(options: Any, context: Any) -> Cpu:
    """Build the platform; it has no options."""
    return Cpu()
