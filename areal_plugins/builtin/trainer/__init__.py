"""The `torch` trainer and its optimizers."""

from __future__ import annotations

from areal_plugins import OptimizerDescriptor, TrainerDescriptor

DESCRIPTORS: tuple[TrainerDescriptor, ...] = ()

OPTIMIZERS: tuple[OptimizerDescriptor, ...] = ()
