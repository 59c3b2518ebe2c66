"""Scores on held-out tasks, through the same engines and rollout workers, outside of the staleness count."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from attrs import asdict

from areal_core.data import NO_VERSION, TaskRef, Trajectory, WeightVersion
from areal_core.pipeline.background import together
from areal_core.pipeline.compose import StageProgram
from areal_core.pipeline.dispatch import Dispatcher, GroupFailed
from areal_core.pipeline.lines import read
from areal_core.pipeline.metrics import score_parts
from areal_core.pipeline.run import EvaluationReport, Run, Scores
from areal_core.pipeline.tasks import Source, held_out, rollout_seed
from areal_core.workers.plans import GroupOrder

CONCURRENT = 2
"""Tasks under way for each completion that the engines work on at once."""


class Evaluator:
    """Evaluates the weights that the engines serve. `slots`: completions they work on at once, in all."""

    def __init__(self, run: Run, dispatcher: Dispatcher, slots: int) -> None:
        self._run, self._dispatcher = run, dispatcher
        self._places = asyncio.Semaphore(CONCURRENT * slots)
        self._numbers = count(1)

    async def run(self, program: StageProgram, sources: Sequence[Source], step: int) -> EvaluationReport | None:
        """Play the held-out tasks of each environment and record their scores; None where there are none.

        Every environment gets an equal share of `evaluation.samples`, the same tasks each time.
        """
        began = self._run.trace.now()
        tasks = _share(program, sources, self._run.info.seed)
        if not tasks:
            text = f"no environment has tasks in the split {program.evaluation.split!r}: nothing is evaluated"
            self._run.events.add("no-evaluation", text, split=program.evaluation.split)
            return None
        played = await self._play_all(program, [task for of in tasks.values() for task in of])
        report = _report(step, tasks, played)
        self._run.trace.span("evaluate", "evaluation", began, step=step)
        self._record(report)
        return report

    async def _play_all(self, program: StageProgram, tasks: Sequence[TaskRef]) -> dict[TaskRef, Trajectory | None]:
        played = await together([self._play(program, task) for task in tasks])
        return dict(zip(tasks, played, strict=True))

    async def _play(self, program: StageProgram, task: TaskRef) -> Trajectory | None:
        """The rollout of one task; None when it failed for good."""
        order = GroupOrder(
            sequence=-next(self._numbers),
            task=task,
            members=(0,),
            sampling=program.evaluation_sampling,
            seed=rollout_seed(self._run.info.seed, -1 - task.index),
            timeout=program.timeout(task.environment),
        )
        async with self._places:
            try:
                return (await self._dispatcher.run(order)).group.trajectories[0]
            except GroupFailed as failure:
                if failure.fatal is not None:
                    raise failure.fatal from failure
                return None

    def _record(self, report: EvaluationReport) -> None:
        environments = {name: asdict(scores) for name, scores in report.environments.items()}
        line = {"step": report.step, "versions": report.versions, "environments": environments}
        self._run.directory.evaluations.add(line)
        self._run.observers.evaluated(report.step, flat(report))
        self._run.watcher.evaluated(report)


def flat(report: EvaluationReport) -> dict[str, float]:
    """The figures as `environment/figure`, and `environment/score/part`."""
    return _flat({name: asdict(scores) for name, scores in report.environments.items()})


def _flat(environments: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, scores in environments.items():
        figures = {figure: value for figure, value in scores.items() if figure != "parts"}
        found |= {f"{name}/{figure}": math.nan if value is None else float(value) for figure, value in figures.items()}
        found |= {f"{name}/score/{part}": value for part, value in scores["parts"].items()}
    return found


def recorded(path: Path) -> dict[int, dict[str, float]]:
    """The evaluations in the file `path`, by step; what broke off while it was written is none."""
    if not path.exists():
        return {}
    return dict(read(path, lambda scored: (scored["step"], _flat(scored["environments"]))))


def first_and_last(scores: Iterable[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """`before/NAME` and `after/NAME`: every environment's accuracy before the first step, and at last."""
    found: dict[str, float] = {}
    for step, figures in scores:
        for key, value in figures.items():
            name, _, figure = key.rpartition("/")
            if figure == "accuracy":
                found[f"after/{name}" if step else f"before/{name}"] = value
    return found


def _share(program: StageProgram, sources: Sequence[Source], seed: int) -> dict[str, list[TaskRef]]:
    existing = [source for source in sources if source.size != 0]
    if not existing:
        return {}
    each = max(1, program.evaluation.samples // len(existing))
    return {source.name: held_out(seed, source, program.evaluation.split, each) for source in existing}


def _report(
    step: int, tasks: Mapping[str, Sequence[TaskRef]], played: Mapping[TaskRef, Trajectory | None]
) -> EvaluationReport:
    answered = [trajectory for trajectory in played.values() if trajectory is not None]
    environments = {name: score([played[task] for task in of]) for name, of in tasks.items()}
    return EvaluationReport(step, environments, _versions(answered))


def score(played: Sequence[Trajectory | None]) -> Scores:
    """One environment's scores; a task that failed counts for none of the means."""
    answered = [trajectory for trajectory in played if trajectory is not None]
    rewards = [trajectory.reward for trajectory in answered]
    accuracies = [trajectory.scores.get("correct", trajectory.reward) for trajectory in answered]
    return Scores(
        reward=_mean(rewards),
        accuracy=_mean(accuracies),
        stderr=standard_error(accuracies),
        tasks=len(played),
        failed=len(played) - len(answered),
        length=_mean([trajectory.trained_units for trajectory in answered]),
        truncated=_mean([trajectory.finish == "length" for trajectory in answered]),
        parts=score_parts(answered),
    )


def standard_error(values: Sequence[float]) -> float:
    """Of the mean, from the sample's variance (n - 1); 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def _mean(values: Sequence[float]) -> float:
    return float(sum(values)) / len(values) if values else math.nan


def _versions(trajectories: Sequence[Trajectory]) -> tuple[str, str]:
    drawn = np.concatenate([np.empty(0, np.int64), *(trajectory.columns["versions"] for trajectory in trajectories)])
    drawn = drawn[drawn != NO_VERSION]
    if not drawn.size:
        return "", ""
    return str(WeightVersion.from_code(int(drawn.min()))), str(WeightVersion.from_code(int(drawn.max())))
