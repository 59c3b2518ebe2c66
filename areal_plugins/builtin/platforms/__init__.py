"""Makes of device."""

from __future__ import annotations

from areal_plugins import PlatformDescriptor

DESCRIPTORS: tuple[PlatformDescriptor, ...] = ()
