"""Recorders of figures."""

from __future__ import annotations

from areal_plugins import TrackerDescriptor

DESCRIPTORS: tuple[TrackerDescriptor, ...] = ()
