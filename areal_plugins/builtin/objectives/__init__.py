"""Training objectives."""

from __future__ import annotations

from areal_plugins import ObjectiveDescriptor

DESCRIPTORS: tuple[ObjectiveDescriptor, ...] = ()
