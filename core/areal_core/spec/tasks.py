"""What must hold between a stage's environments, its objective and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from areal_core.descriptors import EnvironmentCapabilities
from areal_core.errors import Severity
from areal_core.spec.model import EvaluationSpec
from areal_core.spec.scene import Conflict, Scene, conflict

Conflicts = Iterator[Conflict]


def environment_conflicts(scene: Scene) -> Conflicts:
    """All that keeps a stage from having tasks, or scores."""
    if not scene.spec.environments:
        hint = "write environments: [{type: ..., ...}]"
        message = "there is nothing to train on: the spec names no environment"
        yield conflict("no-environment", message, "environments", hint=hint, severity=Severity.UNAVAILABLE)
        return
    yield from _names(scene)
    yield from _weights(scene)
    yield from _evaluation(scene)
    for index, part in scene.environments():
        yield from _one(scene, index, part.name, part.descriptor.capabilities)


def _names(scene: Scene) -> Conflicts:
    seen: dict[str, int] = {}
    for index, environment in enumerate(scene.spec.environments):
        name = environment.name or environment.type
        key = "name" if environment.name else "type"
        if name in seen:
            message = f"environments {seen[name]} and {index} are both called {name}"
            hint = "give each a name of its own"
            yield conflict("duplicate-name", message, f"environments.{index}.{key}", hint=hint)
        seen.setdefault(name, index)


def _weights(scene: Scene) -> Conflicts:
    environments = scene.spec.environments
    if not any(environment.weight for environment in environments):
        reads = [f"environments.{index}.weight" for index in range(len(environments))]
        yield conflict("no-weight", "every environment has weight 0, so no task is ever drawn", *reads)


def _evaluation(scene: Scene) -> Conflicts:
    """Evaluations that were asked for have tasks."""
    evaluation = scene.spec.evaluation
    asked = evaluation.every is not None or evaluation.split != EvaluationSpec().split
    able = [part.descriptor.capabilities for _, part in scene.environments()]
    known = len(able) == len(scene.spec.environments)
    if asked and known and not any(evaluation.split in each.splits for each in able):
        splits = sorted({split for each in able for split in each.splits})
        message = f"no environment has the split {evaluation.split!r} that is evaluated"
        yield conflict("no-split", message, "evaluation.split", hint=f"there are: {', '.join(splits)}")


def _one(scene: Scene, index: int, name: str, able: EnvironmentCapabilities) -> Conflicts:
    environment, path = scene.spec.environments[index], f"environments.{index}"
    objective = scene.capabilities("objective")
    imitates = objective is not None and objective.source == "demonstrate"
    evaluation = scene.spec.evaluation
    trains, evaluates = environment.weight > 0, evaluation.enabled and evaluation.split in able.splits
    if trains and "train" not in able.splits:
        yield conflict("no-split", f"{name} has no tasks to train on, only {', '.join(able.splits)}", f"{path}.type")
    if environment.reward is None and not able.scores and ((trains and not imitates) or evaluates):
        yield conflict(
            "no-reward", f"{name} does not judge its tasks", path, f"{path}.reward", hint="add `reward: ...`"
        )
    if trains and imitates and not able.demonstrations:
        message = f"{name} has no demonstrations, which {scene.name('objective')} imitates"
        yield conflict("no-demonstrations", message, f"{path}.type", "objective.type")
