"""Weight transports: `memory` (one process), `shm` (one host) and `disk` (a shared file system)."""

from __future__ import annotations

from attrs import field, frozen

from areal_plugins import TransportCapabilities, TransportDescriptor


@frozen
class ShmOptions:
    """Shared memory."""

    directory: str = field(default="/dev/shm", metadata={"doc": "Where shared memory is mounted (tmpfs)."})  # noqa: S108


@frozen
class DiskOptions:
    """Files."""

    path: str | None = field(
        default=None,
        metadata={"doc": "A directory that trainer and engines share; the run directory when left out.", "path": True},
    )


DESCRIPTORS: tuple[TransportDescriptor, ...] = (
    TransportDescriptor(
        name="memory",
        summary="Hands tensors over within one process",
        factory="areal_plugins.builtin.transports.memory:MemoryTransport",
        capabilities=TransportCapabilities(offers=("tensors",), scope="process"),
        requires=("torch>=2.6",),
    ),
    TransportDescriptor(
        name="shm",
        summary="Shared memory between the processes of a host; read without a copy",
        factory="areal_plugins.builtin.transports.shm:ShmTransport",
        options=ShmOptions,
        capabilities=TransportCapabilities(offers=("tensors", "shm-handle"), scope="host"),
        requires=("torch>=2.6",),
    ),
    TransportDescriptor(
        name="disk",
        summary="Directories on a file system that trainer and engines share",
        factory="areal_plugins.builtin.transports.disk:DiskTransport",
        options=DiskOptions,
        capabilities=TransportCapabilities(offers=("hf-dir", "tensors"), scope="network"),
        requires=("torch>=2.6", "safetensors>=0.5"),
    ),
)
