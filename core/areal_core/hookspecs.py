# mypy: disable-error-code="empty-body"
"""Every hook there is. A plugin implements the ones it needs with `areal_plugins.hookimpl`.

Component hooks are called once, when plugins are collected, and return descriptors. They must be
cheap and must not import torch or any engine. Observer hooks are called during a run, from a queue
off the controller's loop: they may block, they cannot steer, and one that raises becomes an event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import pluggy

from areal_core import ENTRY_POINT_GROUP

if TYPE_CHECKING:
    from areal_core.contexts import RunInfo, RunSummary
    from areal_core.data import TrajectoryGroup, WeightVersion
    from areal_core.descriptors import (
        EngineDescriptor,
        EnvironmentDescriptor,
        ExecutorDescriptor,
        ModelDescriptor,
        ObjectiveDescriptor,
        OptimizerDescriptor,
        ParallelismDescriptor,
        PlatformDescriptor,
        RewardDescriptor,
        TrackerDescriptor,
        TrainerDescriptor,
        TransportDescriptor,
    )

hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)
hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)


@hookspec
def areal_platforms() -> Iterable[PlatformDescriptor]:
    """Makes of device that workers can compute on."""


@hookspec
def areal_models() -> Iterable[ModelDescriptor]:
    """Sources of models; each yields a Hugging Face directory."""


@hookspec
def areal_inference_engines() -> Iterable[EngineDescriptor]:
    """Engines that generate."""


@hookspec
def areal_trainer_backends() -> Iterable[TrainerDescriptor]:
    """Backends that train."""


@hookspec
def areal_parallelisms() -> Iterable[ParallelismDescriptor]:
    """Ways to spread a model over devices."""


@hookspec
def areal_weight_transports() -> Iterable[TransportDescriptor]:
    """Ways to move weights from trainer ranks to engine workers."""


@hookspec
def areal_environments() -> Iterable[EnvironmentDescriptor]:
    """Sources of tasks."""


@hookspec
def areal_rewards() -> Iterable[RewardDescriptor]:
    """Judges of answers."""


@hookspec
def areal_objectives() -> Iterable[ObjectiveDescriptor]:
    """Training objectives."""


@hookspec
def areal_optimizers() -> Iterable[OptimizerDescriptor]:
    """Optimizers."""


@hookspec
def areal_executors() -> Iterable[ExecutorDescriptor]:
    """Ways to start and reach workers."""


@hookspec
def areal_trackers() -> Iterable[TrackerDescriptor]:
    """Recorders of a run's figures."""


@hookspec
def areal_run_started(run: RunInfo) -> None:
    """A run begins or resumes; its workers are up."""


@hookspec
def areal_trajectories_collected(run: RunInfo, group: TrajectoryGroup) -> None:
    """A group is whole and scored, and enters the buffer."""


@hookspec
def areal_step_finished(run: RunInfo, step: int, metrics: Mapping[str, float]) -> None:
    """Optimizer step `step` (from 1) is done; `metrics` is its line of `metrics.jsonl`."""


@hookspec
def areal_weights_published(run: RunInfo, version: WeightVersion) -> None:
    """All engines serve `version`."""


@hookspec
def areal_worker_failed(run: RunInfo, worker: str, reason: str) -> None:
    """A worker died, hung or was given up on."""


@hookspec
def areal_run_finished(run: RunInfo, summary: RunSummary) -> None:
    """The run ended: done, stopped or failed."""


COMPONENT_HOOKS: dict[str, str] = {
    "platform": "areal_platforms",
    "model": "areal_models",
    "engine": "areal_inference_engines",
    "trainer": "areal_trainer_backends",
    "parallelism": "areal_parallelisms",
    "transport": "areal_weight_transports",
    "environment": "areal_environments",
    "reward": "areal_rewards",
    "objective": "areal_objectives",
    "optimizer": "areal_optimizers",
    "executor": "areal_executors",
    "tracker": "areal_trackers",
}
"""The hook of each component kind."""
