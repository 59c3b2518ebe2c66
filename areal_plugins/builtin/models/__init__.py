"""Model sources."""

from __future__ import annotations

from areal_plugins import ModelDescriptor

DESCRIPTORS: tuple[ModelDescriptor, ...] = ()
