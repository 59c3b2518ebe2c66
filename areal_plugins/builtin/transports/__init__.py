"""Weight transports on one machine."""

from __future__ import annotations

from areal_plugins import TransportDescriptor

DESCRIPTORS: tuple[TransportDescriptor, ...] = ()
