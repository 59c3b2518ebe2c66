"""Where a run can go on from: `checkpoints/step-N/`, written beside the run and then renamed.

At its top a Hugging Face directory, for anyone; in `trainer/` what the trainer needs beside it; in
`pipeline.json` and `buffer.npz` the counters, the finished groups and the ones under way, as far as they were; in
`manifest.json` what all of these are, so that damage is found when it is read.

A crash at any moment leaves the last whole one: everything is on disk before the name `step-N` is,
and that name before anything older goes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from attrs import asdict, field, frozen

from areal_core.data import TaskRef, TrajectoryGroup
from areal_core.errors import CheckpointError
from areal_core.pipeline import manifest
from areal_core.pipeline.columns import pack, unpack
from areal_core.pipeline.metrics import Dropped, Tally, Totals, Watch
from areal_core.pipeline.tasks import Drawn
from areal_core.spec.secrets import without_secrets

GIVE = "give RUN or RUN/checkpoints/step-N"

FORMAT = 3
READS = (2, 3)
"""The formats that can be gone on from. 2 has no partial groups."""

# What a save that was broken off leaves behind its name: one half-written, one being replaced, one being removed.
_FRESH, _OLD, _GONE = ".new", ".old", ".gone"
_NAME = re.compile(rf"step-(\d+)|\.step-(\d+)\{_OLD}")
_UNSET = "not set"
_STATE, _BUFFER, _TRAINER = "pipeline.json", "buffer.npz", "trainer"


@frozen(eq=False)
class PipelineState:
    """All of a run that is not the trainer's: enough to continue the same sequence of groups and steps.

    `buffered` groups are finished and not trained on; `under_way` are the others that were admitted, by sequence:
    they go on from what was drawn of them (see `workers.partial`), where `partial` has it, and else begin anew.
    `scores` are the evaluations so far, as (step, figures). `model` is the directory that the run began with, where
    that was not the spec's model. `filtered` groups in a row were not worth training on; `recent` says of the last
    groups which failed; `alarms` are the alarms' running means, and which of them are raised, by figure. `norms`
    are the recent gradients'.
    """

    step: int = 0
    incarnation: int = 0
    stage: str = ""
    drawn: Drawn = Drawn()
    buffered: tuple[TrajectoryGroup, ...] = ()
    under_way: tuple[tuple[int, TaskRef], ...] = ()
    partial: tuple[TrajectoryGroup, ...] = ()
    tally: Tally = field(factory=Tally)
    scores: tuple[tuple[int, Mapping[str, float]], ...] = ()
    elapsed: float = 0.0
    model: str = ""
    filtered: int = 0
    recent: tuple[bool, ...] = ()
    alarms: Mapping[str, Watch] = field(factory=dict)
    norms: tuple[float, ...] = ()


def begin(folder: Path, step: int) -> Path:
    """An empty directory to write the checkpoint of `step` into; what broken-off saves have left is removed."""
    _clear(folder)
    fresh = folder / f".step-{step}{_FRESH}"
    try:
        (fresh / _TRAINER).mkdir(parents=True)
    except OSError:
        give_up(fresh)
        raise
    return fresh


def tidy(folder: Path) -> None:
    """Remove what broken-off saves have left, as far as it can be; nobody may be writing there."""
    with suppress(OSError):
        _clear(folder)


def finish(fresh: Path, state: PipelineState, identity: Mapping[str, Any], keep: int) -> Path:
    """Complete what the trainer has written to `fresh`, name it `step-N`, and remove all but the newest `keep`."""
    arrays, described = pack((*state.buffered, *state.partial))
    np.savez(fresh / _BUFFER, **arrays)  # type: ignore[arg-type]  # numpy's stub takes no keyword arrays
    data = _encode(state, described) | {"format": FORMAT, "identity": dict(identity)}
    (fresh / _STATE).write_text(json.dumps(data, ensure_ascii=False, indent=1), encoding="utf-8")
    manifest.seal(fresh)
    final = fresh.with_name(f"step-{state.step}")
    old = final.with_name(f".{final.name}{_OLD}")
    if final.exists():
        final.rename(old)
    fresh.rename(final)
    manifest.sync(final.parent)
    _remove(old)
    _prune(final, state.step, keep)
    return final


def give_up(fresh: Path) -> None:
    """Remove a checkpoint that could not be finished; one that it was to replace has its name again."""
    old = fresh.with_name(fresh.name.removesuffix(_FRESH) + _OLD)
    final = fresh.with_name(fresh.name[1 : -len(_FRESH)])
    if old.exists() and not final.exists():
        old.rename(final)
    _remove(fresh)


def newest(run: Path) -> tuple[Path | None, Sequence[CheckpointError]]:
    """The newest checkpoint of the run directory `run` that is whole, and what is wrong with each newer one.

    Reads it all: of a run on the loop, call this in a thread.
    """
    damaged: list[CheckpointError] = []
    for path in reversed(_found(run / "checkpoints")):
        if (problem := _damage(path)) is None:
            return path, damaged
        damaged.append(problem)
    return None, damaged


def latest(run: Path) -> Path:
    """The newest checkpoint of the run directory `run` that is whole, or `run` itself where it is one.

    Raises:
        CheckpointError: there is none; it names the file that is damaged where there is one.

    """
    if is_checkpoint(run):
        _verify(run)
        return run
    found, damaged = newest(run)
    if found is not None:
        return found
    if damaged:
        problem = f"{damaged[0].problem}; the run has no whole checkpoint ({_else(run)})"
        raise CheckpointError(damaged[0].path, problem)
    problem = "has no checkpoint yet" if (run / "checkpoints").is_dir() else f"is no run directory ({GIVE})"
    raise CheckpointError(str(run), problem)


def is_checkpoint(path: Path) -> bool:
    """Whether `path` is a checkpoint itself, damaged or not."""
    return (path / _STATE).is_file() or (path / manifest.NAME).is_file()


def model_directory(path: Path) -> Path:
    """Where the weights are: in `path` itself, or in the newest whole checkpoint of the run directory `path`.

    Raises:
        CheckpointError: a checkpoint that is damaged. Other directories have nothing to compare with.

    """
    return latest(path) if is_checkpoint(path) or _found(path / "checkpoints") else path


def abandon(folder: Path, step: int, damaged: Iterable[CheckpointError] = ()) -> None:
    """Set aside what is under `folder` of steps after `step`: a run goes on from `step` another way.

    It becomes `abandoned-step-N`, or `damaged-step-N` where `damaged` says that it is not whole: nobody's latest, and
    replaced by nothing but another such one of the same step.
    """
    broken = [Path(problem.path) for problem in damaged]
    for path in _found(folder, after=step):
        whole = not any(file.is_relative_to(path) for file in broken)
        aside = folder / f"{'abandoned' if whole else 'damaged'}-step-{_step(path)}"
        if os.path.lexists(aside):
            _discard(aside)
        path.rename(aside)


def as_it_was(checkpoint: Path) -> str:
    """The way out where `checkpoint` does not fit the spec."""
    run = checkpoint.parent.parent
    return f"give the spec and --set that it was run with: they are in {run}/spec.yaml and {run}/provenance.json"


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
        if data["format"] not in READS:
            known = " and ".join(map(str, READS))
            raise CheckpointError(str(checkpoint), f"has format {data['format']}; this release reads {known}")
        _compare(checkpoint, data["identity"], identity)
        with np.load(checkpoint / _BUFFER, allow_pickle=False) as arrays:
            return _decode(data, arrays)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise CheckpointError(str(checkpoint), f"is damaged: {type(error).__name__}: {error}") from error


def _clear(folder: Path) -> None:
    for old in sorted(folder.glob(f".step-*{_OLD}")):
        if not (named := folder / old.name[1 : -len(_OLD)]).exists():
            old.rename(named)
    for left_over in sorted(folder.glob(".step-*")):
        _discard(left_over)


def _prune(newest: Path, step: int, keep: int) -> None:
    """Remove what is older than the newest `keep` that are whole. `newest`, of step `step`, is: it was just written."""
    older = [path for path in reversed(_found(newest.parent)) if _step(path) < step]
    whole = 1
    for path in older if len(older) >= keep else ():
        if whole >= keep:
            _remove(path.rename(path.with_name(f".{path.name.lstrip('.')}{_GONE}")))
        elif _damage(path) is None:
            whole += 1


def _remove(path: Path) -> None:
    """As far as it can be; the next save tries again."""
    with suppress(OSError):
        _discard(path, ignore_errors=True)


def _discard(path: Path, ignore_errors: bool = False) -> None:
    """Remove a directory, or whatever is in its place: one that was moved elsewhere is left alone behind its link."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors)


def _verify(path: Path) -> None:
    files = manifest.verify(path)
    for name in (_STATE, _BUFFER):
        if name not in files:
            raise CheckpointError(str(path / manifest.NAME), f"is damaged: it knows of no {name}")
    if not any(Path(name).parts[0] == _TRAINER for name in files):
        raise CheckpointError(str(path / manifest.NAME), f"is damaged: it knows of no file in {_TRAINER}")


def _damage(path: Path) -> CheckpointError | None:
    try:
        _verify(path)
    except CheckpointError as problem:
        return problem
    return None


def _found(folder: Path, after: int = -1) -> list[Path]:
    """Every checkpoint of steps after `after`, oldest first; one being replaced where its successor has no name yet."""
    named = [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []
    by_step = {_step(path): path for path in sorted(named, key=lambda path: not path.name.startswith("."))}
    return [by_step[step] for step in sorted(by_step) if step > after]


def _step(path: Path) -> int:
    match = _NAME.fullmatch(path.name)
    assert match is not None
    return int(match[1] or match[2])


def _else(run: Path) -> str:
    """What is left to a run whose checkpoints are all damaged."""
    folder = run / "checkpoints"
    aside = [int(path.name.rpartition("-")[2]) for path in folder.glob("abandoned-step-*") if is_checkpoint(path)]
    return f"give {folder}/abandoned-step-{max(aside)}, or begin a new run" if aside else "begin a new run"


def _compare(checkpoint: Path, theirs: Mapping[str, Any], mine: Mapping[str, Any]) -> None:
    """Raise `CheckpointError` that names the first value in which they differ."""
    before = dict(_values("", {key: theirs.get(key) for key in mine}))
    now = dict(_values("", json.loads(json.dumps(mine))))
    for key in {**now, **before}:
        if (one := before.get(key, _UNSET)) != (other := now.get(key, _UNSET)):
            differs = f"its {key} is {_shown(key, one)}, the spec's {_shown(key, other)}"
            way_out = f"{as_it_was(checkpoint)}; or begin a new run with --warm-start {checkpoint}"
            raise CheckpointError(str(checkpoint), f"is of another experiment: {differs} ({way_out})")


def _values(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """All that is no mapping, by the dotted way to it; a component, `[name, options]`, stands above its options."""
    match value:
        case {} if value:
            for name, below in value.items():
                yield from _values(f"{key}.{name}".lstrip("."), below)
        case [name, {} as options]:
            yield key, name
            yield from _values(key, options)
        case _:
            yield key, value


def _shown(key: str, value: Any) -> str:
    shown = without_secrets(value, key)
    return ", ".join(map(str, shown)) if isinstance(shown, list) else str(shown)


def _encode(state: PipelineState, described: list[dict[str, Any]]) -> dict[str, Any]:
    finished = len(state.buffered)
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
        "filtered": state.filtered,
        "recent": state.recent,
        "alarms": {figure: asdict(watch) for figure, watch in state.alarms.items()},
        "norms": state.norms,
        "buffered": described[:finished],
        "partial": described[finished:],
    }


def _decode(data: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> PipelineState:
    finished = len(data["buffered"])
    groups = tuple(unpack([*data["buffered"], *data.get("partial", ())], arrays))
    return PipelineState(
        step=data["step"],
        incarnation=data["incarnation"],
        stage=data["stage"],
        drawn=Drawn(**data["drawn"]),
        buffered=groups[:finished],
        partial=groups[finished:],
        under_way=tuple((sequence, TaskRef(**task)) for sequence, task in data["under_way"]),
        tally=Tally(Totals(**data["totals"]), {cause: Dropped(**counts) for cause, counts in data["dropped"].items()}),
        scores=tuple((step, figures) for step, figures in data["scores"]),
        elapsed=data["elapsed"],
        model=data["model"],
        filtered=data["filtered"],
        recent=tuple(data["recent"]),
        alarms={figure: Watch(**watch) for figure, watch in data["alarms"].items()},
        norms=tuple(data["norms"]),
    )
