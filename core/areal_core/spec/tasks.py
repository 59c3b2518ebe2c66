"""What must hold between a stage's environments, its objective and its evaluation."""

from __future__ import annotations

from collections.abc import Iterator

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


def _one(scene: Scene, index: int, type_name: str, able: object) -> Conflicts:
    environment, path = scene.spec.environments[index], f"environments.{index}"
    splits, scores = getattr(able, "splits", ()), getattr(able, "scores", False)
    objective = scene.capabilities("objective")
    demonstrates = objective is not None and objective.source == "demonstrate"
    evaluation = scene.spec.evaluation
    for split, used in (("train", environment.weight > 0), (evaluation.split, evaluates(evaluation))):
        if used and split not in splits:
            message = f"{type_name} has no split {split!r}; it has {', '.join(splits) or 'none'}"
            at = path if split == "train" and split != evaluation.split else "evaluation.split"
            yield conflict("no-split", message, at, path)
    if environment.reward is None and not scores and not (demonstrates and not evaluates(evaluation)):
        message = f"{type_name} does not judge its tasks, and has no reward"
        yield conflict("no-reward", message, path, f"{path}.reward", hint="add `reward: ...`")
    if demonstrates and environment.weight > 0 and not getattr(able, "demonstrations", False):
        message = f"{type_name} has no demonstrations, which {scene.name('objective')} imitates"
        yield conflict("no-demonstrations", message, f"{path}.type", "objective.type")


def evaluates(evaluation: EvaluationSpec) -> bool:
    """Whether any evaluation happens."""
    return evaluation.before or evaluation.after or evaluation.every is not None
