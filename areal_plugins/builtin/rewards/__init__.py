"""Judges of answers."""

from __future__ import annotations

from areal_plugins import RewardDescriptor

DESCRIPTORS: tuple[RewardDescriptor, ...] = ()
