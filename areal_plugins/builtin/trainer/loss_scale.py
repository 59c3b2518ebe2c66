"""The factor that keeps float16 gradients from vanishing (Micikevicius et al., arXiv 1710.03740)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define

_GROWTH_STEPS = 2000


@define
class LossScale:
    """A constant, or `dynamic`: doubled after 2000 good steps in a row, halved after an overflow."""

    value: float = 1.0
    dynamic: bool = False
    good: int = 0

    @classmethod
    def of(cls, amp: Mapping[str, Any]) -> LossScale:
        """From the `amp` section of a spec; only float16 needs one."""
        if not amp.get("enabled") or amp.get("dtype") != "fp16":
            return cls()
        wanted = amp.get("loss_scale", "dynamic")
        return cls(value=2.0**16, dynamic=True) if wanted == "dynamic" else cls(value=float(wanted))

    def update(self, finite: bool) -> None:
        """Take note of a step's outcome."""
        if not self.dynamic:
            return
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.value /= 2
        elif self.good % _GROWTH_STEPS == 0:
            self.value *= 2
