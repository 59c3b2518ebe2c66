"""NVIDIA GPUs as a platform."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from areal_plugins.protocols import Place

VISIBLE = "CUDA_VISIBLE_DEVICES"


@frozen
class Cuda:
    """GPUs by their device files; `devices` is where those are."""

    devices: Path = field(default=Path("/dev"))

    def count(self) -> int:
        present = [path for path in self.devices.glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name)]
        visible = os.environ.get(VISIBLE)
        if visible is None:
            return len(present)
        return min(len(present), len([part for part in visible.split(",") if part.strip() not in ("", "-1")]))

    def missing(self) -> str | None:
        if self.count():
            return None
        if os.environ.get(VISIBLE) is not None:
            return f"{VISIBLE} hides every GPU"
        return "no NVIDIA device (/dev/nvidia0); is the driver loaded?"

    def environment(self, place: Place) -> Mapping[str, str]:
        """The worker sees its own GPUs only; indices count among those that this process sees."""
        if not place.devices:
            return {}
        outer = [part.strip() for part in os.environ.get(VISIBLE, "").split(",") if part.strip()]
        return {VISIBLE: ",".join(outer[index] if outer else str(index) for index in place.devices)}


def make(options: Any, context: Any) -> Cuda:
    """Build the platform; it has no options."""
    return Cuda()
