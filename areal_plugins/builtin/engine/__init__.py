"""The `torch` inference engine."""

from __future__ import annotations

from areal_plugins import EngineDescriptor

DESCRIPTORS: tuple[EngineDescriptor, ...] = ()
