"""The platform `npu`: Ascend devices."""

from __future__ import annotations

from areal_plugins import PlatformCapabilities, PlatformDescriptor, hookimpl

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


@hookimpl
def areal_platforms() -> tuple[PlatformDescriptor, ...]:
    """Ascend, before CUDA and the processor where several are present."""
    return (
        PlatformDescriptor(
            name="npu",
            summary="Ascend NPUs, with HCCL between them",
            factory="areal_plugin_ascend.platform:make",
            capabilities=PlatformCapabilities(device="npu", collective="hccl", visible_devices=VISIBLE, priority=20),
        ),
    )
