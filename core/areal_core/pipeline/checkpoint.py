"""Where a run can go on from: `checkpoints/step-N/`, written beside the run and then renamed.

At its top a Hugging Face directory, for anyone; in `trainer/` what the trainer needs beside it; in
`pipeline.json` and `buffer.npz` the counters, the finished groups and the ones under way.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import asdict, field, frozen

from areal_core.data import TaskRef, Trajectory, TrajectoryGroup
from areal_core.errors import CheckpointError
from areal_core.pipeline.metrics import Dropped, Tally, Totals
from areal_core.pipeline.tasks import Drawn
from areal_core.workers.group import WorkerGroup

FORMAT = 1
_NAME = re.compile(r"step-(\d+)")
_STATE, _BUFFER, _TRAINER = "pipeline.json", "buffer.npz", "trainer"


@frozen(eq=False)
class PipelineState:
    """All of a run that is not the trainer's: enough to continue the same sequence of groups and steps.

    `buffered` groups are finished and not trained on; `under_way` are those whose rollout begins
    anew, by sequence. `scores` are the evaluations so far, as (step, figures). `model` is the directory
    that the run began with, where that was not the spec's model. `norms` are the recent gradients'.
    """

    step: int = 0
    incarnation: int = 0
    stage: str = ""
    drawn: Drawn = Drawn()
    buffered: tuple[TrajectoryGroup, ...] = ()
    under_way: tuple[tuple[int, TaskRef], ...] = ()
    tally: Tally = field(factory=Tally)
    scores: tuple[tuple[int, Mapping[str, float]], ...] = ()
    elapsed: float = 0.0
    model: str = ""
    norms: tuple[float, ...] = ()


async def save(
    folder: Path, trainer: WorkerGroup, state: PipelineState, identity: Mapping[str, Any], keep: int
) -> Path:
    """Write `step-N` under `folder`, and remove all but the newest `keep`; its path."""
    final, fresh = folder / f"step-{state.step}", folder / f".step-{state.step}.new"
    try:
        await asyncio.to_thread(_begin, fresh)
        await trainer.call("save_model", str(fresh))
        await trainer.call("save_state", str(fresh / _TRAINER))
        await asyncio.to_thread(_finish, fresh, final, state, identity, keep)
    except Exception:  # not when cancelled: whoever writes there goes on, and the next save removes it
        await asyncio.to_thread(shutil.rmtree, fresh, ignore_errors=True)
        raise
    return final


def latest(run: Path) -> Path:
    """The newest checkpoint of the run directory `run`, or `run` itself where it is one.

    Raises:
        CheckpointError: there is none.

    """
    if (run / _STATE).is_file():
        return run
    found = _found(run / "checkpoints")
    if not found:
        problem = "is no run directory" if not run.is_dir() else "has no whole checkpoint"
        raise CheckpointError(str(run), f"{problem}; nothing can be resumed from it")
    return found[-1]


def abandon(folder: Path, step: int) -> None:
    """Rename what is under `folder` of steps after `step` to `abandoned-step-N`: a run goes on from `step` another way.

    It is then nobody's latest, and nothing but another abandoned checkpoint of the same step replaces it.
    """
    for path in _found(folder, after=step):
        aside = path.with_name(f"abandoned-{path.name}")
        if aside.exists():
            shutil.rmtree(aside)
        path.rename(aside)


def trainer_state(checkpoint: Path) -> Path:
    """The trainer's part."""
    return checkpoint / _TRAINER


def read(checkpoint: Path, identity: Mapping[str, Any]) -> PipelineState:
    """The pipeline's part.

    Raises:
        CheckpointError: it is damaged, written by another release's format, or of another experiment.

    """
    try:
        data = json.loads((checkpoint / _STATE).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            raise CheckpointError(str(checkpoint), f"has format {data['format']}; this release reads {FORMAT}")
        _compare(checkpoint, data["identity"], identity)
        with np.load(checkpoint / _BUFFER, allow_pickle=False) as arrays:
            return _decode(data, arrays)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise CheckpointError(str(checkpoint), f"is damaged: {type(error).__name__}: {error}") from error


def _begin(fresh: Path) -> None:
    for left_over in fresh.parent.glob(".step-*"):
        shutil.rmtree(left_over)
    (fresh / _TRAINER).mkdir(parents=True)


def _finish(fresh: Path, final: Path, state: PipelineState, identity: Mapping[str, Any], keep: int) -> None:
    arrays, described = _pack(state.buffered)
    np.savez(fresh / _BUFFER, **arrays)  # type: ignore[arg-type]  # numpy's stub takes no keyword arrays
    data = _encode(state, described) | {"format": FORMAT, "identity": dict(identity)}
    (fresh / _STATE).write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
    old = final.with_name(f".{final.name}.old")
    if final.exists():
        final.rename(old)
    fresh.rename(final)
    shutil.rmtree(old, ignore_errors=True)
    for outdated in _found(final.parent)[:-keep]:
        shutil.rmtree(outdated)


def _found(folder: Path, after: int = -1) -> list[Path]:
    """The whole checkpoints of steps after `after`, oldest first."""
    named = [(int(match[1]), path) for path in folder.glob("step-*") if (match := _NAME.fullmatch(path.name))]
    return [path for step, path in sorted(named) if step > after and (path / _STATE).is_file()]


def _compare(checkpoint: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    for key, value in mine.items():
        if theirs.get(key) != json.loads(json.dumps(value)):
            raise CheckpointError(
                str(checkpoint), f"is of another experiment: its {key} is {theirs.get(key)!r}, the spec's {value!r}"
            )


def _encode(state: PipelineState, buffered: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "step": state.step,
        "incarnation": state.incarnation,
        "stage": state.stage,
        "drawn": asdict(state.drawn),
        "under_way": [[sequence, asdict(task)] for sequence, task in state.under_way],
        "totals": asdict(state.tally.totals),
        "dropped": {cause: asdict(dropped) for cause, dropped in state.tally.dropped.items()},
        "scores": [[step, dict(figures)] for step, figures in state.scores],
        "elapsed": state.elapsed,
        "model": state.model,
        "norms": state.norms,
        "buffered": buffered,
    }


def _decode(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PipelineState:
    return PipelineState(
        step=data["step"],
        incarnation=data["incarnation"],
        stage=data["stage"],
        drawn=Drawn(**data["drawn"]),
        buffered=tuple(_unpack(data["buffered"], arrays)),
        under_way=tuple((sequence, TaskRef(**task)) for sequence, task in data["under_way"]),
        tally=Tally(Totals(**data["totals"]), {cause: Dropped(**counts) for cause, counts in data["dropped"].items()}),
        scores=tuple((step, figures) for step, figures in data["scores"]),
        elapsed=data["elapsed"],
        model=data["model"],
        norms=tuple(data["norms"]),
    )


def _pack(groups: Iterable[TrajectoryGroup]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Columns of the same kind one after another, and for each trajectory all else, in the same order."""
    columns: defaultdict[str, list[np.ndarray]] = defaultdict(list)
    described = []
    for group in groups:
        members = []
        for trajectory in group:
            facts = asdict(trajectory, recurse=False)
            facts["columns"] = {name: _kind(name, column) for name, column in trajectory.columns.items()}
            facts["units"] = len(trajectory)
            for name, column in trajectory.columns.items():
                columns[_kind(name, column)].append(column)
            members.append(facts)
        described.append({"sequence": group.sequence, "task": asdict(group.task), "trajectories": members})
    return {kind: np.concatenate(parts) for kind, parts in columns.items()}, described


def _unpack(described: Iterable[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]) -> Iterable[TrajectoryGroup]:
    loaded: dict[str, np.ndarray] = {}
    used: defaultdict[str, int] = defaultdict(int)
    for group in described:
        members = []
        for facts in group["trajectories"]:
            units, columns = facts["units"], {}
            for name, kind in facts["columns"].items():
                if kind not in loaded:
                    loaded[kind] = arrays[kind]
                columns[name] = loaded[kind][used[kind] : used[kind] + units]
                used[kind] += units
            rest = {key: value for key, value in facts.items() if key not in ("units", "columns")}
            members.append(Trajectory(columns=columns, **rest))
        yield TrajectoryGroup(group["sequence"], TaskRef(**group["task"]), tuple(members))


def _kind(name: str, column: np.ndarray) -> str:
    return f"{name}|{column.dtype.str}|{'x'.join(map(str, column.shape[1:]))}"
