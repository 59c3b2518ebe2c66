"""Ascend NPUs as a platform; neither torch nor torch_npu is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from areal_plugin_ascend import VISIBLE
from areal_plugin_ascend.software import lacking
from areal_plugins.protocols import Place

SETTINGS = {
    "HCCL_CONNECT_TIMEOUT": "7200",
    "HCCL_EXEC_TIMEOUT": "14400",
    "HCCL_EVENT_TIMEOUT": "14500",
    "HCCL_OP_EXPANSION_MODE": "HOST",
    "HCCL_ASYNC_ERROR_HANDLING": "0",
    "ACL_DEVICE_SYNC_TIMEOUT": "14400",
    "TASK_QUEUE_ENABLE": "2",
    "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True",
}
"""What AReaL's NPU examples set; reasons are in the plugin's README."""


@frozen
class Npu:
    """NPUs by their device files; `devices` is where those are."""

    devices: Path = field(default=Path("/dev"))

    def count(self) -> int:
        present = len(self._present())
        visible = _visible()
        return present if visible is None else min(present, len(visible))

    def missing(self) -> str | None:
        return "; ".join([*self._lacking_devices(), *lacking()]) or None

    def environment(self, place: Place) -> Mapping[str, str]:
        """The worker sees its own NPUs only (indices count among those that this process sees), and
        starts with `SETTINGS`, apart from those that the environment sets already.
        """
        settings = {name: value for name, value in SETTINGS.items() if name not in os.environ}
        if not place.devices:
            return settings
        outer = _visible()
        chosen = [str(index) if outer is None else outer[index] for index in place.devices]
        return {**settings, VISIBLE: ",".join(chosen)}

    def _present(self) -> list[Path]:
        return [path for path in self.devices.glob("davinci*") if re.fullmatch(r"davinci\d+", path.name)]

    def _lacking_devices(self) -> Iterator[str]:
        if not self._present():
            yield "no NPU device (/dev/davinci0): load the driver, or start the container with --device=/dev/davinci0"
        elif not (self.devices / "davinci_manager").exists():
            yield "no /dev/davinci_manager: start the container with --device=/dev/davinci_manager"
        elif not self.count():
            yield f"{VISIBLE} hides every NPU"


def make(options: Any, context: Any) -> Npu:
    """Build the platform; it has no options."""
    return Npu()


def _visible() -> list[str] | None:
    """Devices that this process is limited to; None: it is not."""
    text = os.environ.get(VISIBLE)
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]
