"""The public face of areal-plugins: what a plugin imports. Torch-free and fast to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from areal_core import API_VERSION
from areal_core.descriptors import (
    CheckContext,
    EngineCapabilities,
    EngineDescriptor,
    EnvironmentCapabilities,
    EnvironmentDescriptor,
    ExecutorCapabilities,
    ExecutorDescriptor,
    ModelCapabilities,
    ModelDescriptor,
    ModelShape,
    ObjectiveCapabilities,
    ObjectiveDescriptor,
    OptimizerCapabilities,
    OptimizerDescriptor,
    ParallelismCapabilities,
    ParallelismDescriptor,
    PlatformCapabilities,
    PlatformDescriptor,
    RewardCapabilities,
    RewardDescriptor,
    TrackerCapabilities,
    TrackerDescriptor,
    TrainerCapabilities,
    TrainerDescriptor,
    TransportCapabilities,
    TransportDescriptor,
)
from areal_core.errors import (
    ArealError,
    ComponentError,
    Finding,
    InputError,
    PromptTooLong,
    Severity,
    TransportError,
)
from areal_core.hookspecs import hookimpl

if TYPE_CHECKING:
    from areal_plugins import data, protocols

_LAZY = ("data", "protocols")

__all__ = [
    "API_VERSION",
    "ArealError",
    "CheckContext",
    "ComponentError",
    "EngineCapabilities",
    "EngineDescriptor",
    "EnvironmentCapabilities",
    "EnvironmentDescriptor",
    "ExecutorCapabilities",
    "ExecutorDescriptor",
    "Finding",
    "InputError",
    "ModelCapabilities",
    "ModelDescriptor",
    "ModelShape",
    "ObjectiveCapabilities",
    "ObjectiveDescriptor",
    "OptimizerCapabilities",
    "OptimizerDescriptor",
    "ParallelismCapabilities",
    "ParallelismDescriptor",
    "PlatformCapabilities",
    "PlatformDescriptor",
    "PromptTooLong",
    "RewardCapabilities",
    "RewardDescriptor",
    "Severity",
    "TrackerCapabilities",
    "TrackerDescriptor",
    "TrainerCapabilities",
    "TrainerDescriptor",
    "TransportCapabilities",
    "TransportDescriptor",
    "TransportError",
    "data",
    "hookimpl",
    "protocols",
]


def __getattr__(name: str) -> Any:
    """`areal_plugins.data` and `areal_plugins.protocols` on first use: they bring numpy."""
    if name in _LAZY:
        return import_module(f"areal_plugins.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
