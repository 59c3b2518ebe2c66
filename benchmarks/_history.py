"""What a run directory must say of its run, checked from its files alone: shares no code with what wrote them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

Line = dict[str, Any]


@frozen
class Promise:
    """What was asked for: all steps, and of each stage by name its last step, groups a batch and their size."""

    steps: int
    max_staleness: int
    stages: Mapping[str, tuple[int, int, int]]
    tasks: int | None
    """Tasks of the one environment (None: without end); the n-th group drawn is of epoch `n // tasks`."""


def problems(run: Path, promise: Promise) -> list[str]:
    """Everything that the run broke; empty is good."""
    metrics, groups = lines(run / "metrics.jsonl"), trajectories(run)
    return [
        *_steps(metrics, promise),
        *_batches(groups, promise),
        *_once(groups, promise),
        *_lags(groups, metrics, promise),
        *_gaps(groups, lines(run / "events.jsonl")),
        *_whole_files(run),
    ]


def lines(path: Path) -> list[Line]:
    """The whole lines of a file of JSON; one that a kill cut short is left out."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def trajectories(run: Path) -> list[Line]:
    """The groups that were trained on, in order."""
    return [line for path in sorted((run / "trajectories").glob("steps-*.jsonl")) for line in lines(path)]


def _steps(metrics: list[Line], promise: Promise) -> Iterator[str]:
    found = [line["step"] for line in metrics]
    if found != list(range(1, promise.steps + 1)):
        twice = [step for step, times in Counter(found).items() if times > 1]
        missing = sorted(set(range(1, promise.steps + 1)) - set(found))
        yield f"metrics.jsonl holds {len(found)} of {promise.steps} steps: twice {twice}, missing {missing}"


def _batches(groups: list[Line], promise: Promise) -> Iterator[str]:
    """Each step has the groups of a batch, each group all of its members, once."""
    by_step: defaultdict[int, list[Line]] = defaultdict(list)
    for group in groups:
        by_step[group["step"]].append(group)
    for step in range(1, promise.steps + 1):
        _, batch, size = next(stage for stage in promise.stages.values() if step <= stage[0])
        if len(by_step[step]) != batch:
            yield f"step {step} was trained on {len(by_step[step])} groups, not {batch}"
        for group in by_step[step]:
            members = sorted(trajectory["member"] for trajectory in group["trajectories"])
            if members != list(range(size)):
                yield f"step {step}: group {group['sequence']} has the members {members}, not {size}"


def _once(groups: list[Line], promise: Promise) -> Iterator[str]:
    """No place in the order of submission, and no task within an epoch, twice."""
    places = Counter(group["sequence"] for group in groups)
    tasks = Counter((group["sequence"] // (promise.tasks or 1 << 62), group["index"]) for group in groups)
    for what, counts in (("group", places), ("(epoch, task)", tasks)):
        for which, times in counts.items():
            if times > 1:
                yield f"{what} {which} was trained on {times} times"


def _lags(groups: list[Line], metrics: list[Line], promise: Promise) -> Iterator[str]:
    """`version` is `incarnation.step` of a trajectory's oldest token; batch `t` makes step `t + 1`."""
    for group in groups:
        for trajectory in group["trajectories"]:
            if trajectory["version"] is not None:
                lag = group["step"] - 1 - int(trajectory["version"].partition(".")[2])
                if not 0 <= lag <= promise.max_staleness:
                    yield f"step {group['step']}: group {group['sequence']} lags by {lag}"
    for line in metrics:
        if line["lag/max"] > promise.max_staleness:
            yield f"step {line['step']} has a lag of {line['lag/max']}"


def _gaps(groups: list[Line], events: list[Line]) -> Iterator[str]:
    """What was submitted before something that was trained on, and was not itself, has been counted as dropped."""
    trained = {group["sequence"] for group in groups}
    missing = max(trained, default=-1) + 1 - len(trained)
    dropped = sum(event["data"]["groups"] for event in events if event["kind"] == "dropped")
    if missing > dropped:
        yield f"{missing} groups were neither trained on nor dropped with a cause, of which {dropped} are known"


def _whole_files(run: Path) -> Iterator[str]:
    """Nothing half-written is left; files that are only ever locked stay."""
    for path in run.rglob("*"):
        if path.suffix != ".lock" and (path.name.startswith(".") or path.suffix in (".partial", ".new", ".tmp")):
            yield f"{path.relative_to(run)} was left behind"
