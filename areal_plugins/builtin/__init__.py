"""What runs on a plain CPU: the built-in plugin, registered like anyone's through an entry point.

Each area's package holds light descriptors; the code behind them is imported when a spec selects it.
"""

from __future__ import annotations

from areal_plugins import (
    EngineDescriptor,
    EnvironmentDescriptor,
    ExecutorDescriptor,
    ModelDescriptor,
    ObjectiveDescriptor,
    OptimizerDescriptor,
    PlatformDescriptor,
    RewardDescriptor,
    TrackerDescriptor,
    TrainerDescriptor,
    TransportDescriptor,
    hookimpl,
)
from areal_plugins.builtin import (
    engine,
    environments,
    executors,
    models,
    objectives,
    platforms,
    rewards,
    trackers,
    trainer,
    transports,
)


@hookimpl
def areal_platforms() -> tuple[PlatformDescriptor, ...]:
    return platforms.DESCRIPTORS


@hookimpl
def areal_models() -> tuple[ModelDescriptor, ...]:
    return models.DESCRIPTORS


@hookimpl
def areal_inference_engines() -> tuple[EngineDescriptor, ...]:
    return engine.DESCRIPTORS


@hookimpl
def areal_trainer_backends() -> tuple[TrainerDescriptor, ...]:
    return trainer.DESCRIPTORS


@hookimpl
def areal_optimizers() -> tuple[OptimizerDescriptor, ...]:
    return trainer.OPTIMIZERS


@hookimpl
def areal_weight_transports() -> tuple[TransportDescriptor, ...]:
    return transports.DESCRIPTORS


@hookimpl
def areal_environments() -> tuple[EnvironmentDescriptor, ...]:
    return environments.DESCRIPTORS


@hookimpl
def areal_rewards() -> tuple[RewardDescriptor, ...]:
    return rewards.DESCRIPTORS


@hookimpl
def areal_objectives() -> tuple[ObjectiveDescriptor, ...]:
    return objectives.DESCRIPTORS


@hookimpl
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    return executors.DESCRIPTORS


@hookimpl
def areal_trackers() -> tuple[TrackerDescriptor, ...]:
    return trackers.DESCRIPTORS
