"""Devices by their public figures; `docs/simulate.md` names the sources."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen
class Hardware:
    """One device: dense bf16 FLOP/s, bytes/s of its memory, bytes of it, and bytes/s each way to others.

    `near` is the link to a device of the same node of `node` devices, `far` the share of the network that
    one device has.
    """

    name: str = field(metadata={"doc": "Name for people."})
    flops: float = field(metadata={"doc": "Dense bf16 operations a second.", "gt": 0})
    bandwidth: float = field(metadata={"doc": "Bytes a second from its memory.", "gt": 0})
    memory: float = field(metadata={"doc": "Bytes of memory.", "gt": 0})
    near: float = field(metadata={"doc": "Bytes a second, one way, to a device of the same node.", "gt": 0})
    far: float = field(metadata={"doc": "Bytes a second, one way, to another node.", "gt": 0})
    node: int = field(default=8, metadata={"doc": "Devices of a node.", "ge": 1})


PROFILES: Mapping[str, Hardware] = {
    "h800": Hardware("NVIDIA H800 SXM", 989e12, 3.35e12, 80e9, 200e9, 50e9),
    "h200": Hardware("NVIDIA H200 SXM", 989e12, 4.8e12, 141e9, 450e9, 50e9),
    "910b": Hardware("Ascend 910B", 376e12, 1.6e12, 64e9, 196e9, 25e9),
    "910c": Hardware("Ascend 910C", 752e12, 3.2e12, 128e9, 392e9, 50e9, 16),
    "cpu": Hardware("processor core", 65e9, 10e9, 8e9, 10e9, 1e9, 64),
}
"""By the name that `--hardware` takes. A 910C is its package of two dies; a core computes in float32."""
