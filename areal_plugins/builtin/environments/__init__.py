"""Sources of tasks that need no third-party library."""

from __future__ import annotations

from areal_plugins import EnvironmentDescriptor

DESCRIPTORS: tuple[EnvironmentDescriptor, ...] = ()
