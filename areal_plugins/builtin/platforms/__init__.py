"""Makes of device: `cpu` and `cuda`. Torch-free: presence is read from device files."""

from __future__ import annotations

from areal_plugins import PlatformCapabilities, PlatformDescriptor

DESCRIPTORS: tuple[PlatformDescriptor, ...] = (
    PlatformDescriptor(
        name="cpu",
        summary="the processor; every worker gets cores of its own",
        factory="areal_plugins.builtin.platforms.cpu:make",
        capabilities=PlatformCapabilities(device="cpu", collective="gloo", priority=0),
    ),
    PlatformDescriptor(
        name="cuda",
        summary="NVIDIA GPUs",
        factory="areal_plugins.builtin.platforms.cuda:make",
        capabilities=PlatformCapabilities(
            device="cuda", collective="nccl", visible_devices="CUDA_VISIBLE_DEVICES", priority=10
        ),
    ),
)
