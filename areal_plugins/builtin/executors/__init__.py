"""Ways to start workers on one machine."""

from __future__ import annotations

from areal_plugins import ExecutorDescriptor

DESCRIPTORS: tuple[ExecutorDescriptor, ...] = ()
