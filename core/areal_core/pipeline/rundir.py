"""The files of a run directory that grow line by line, and the two that say what the run is.

`metrics.jsonl`, `evaluations.jsonl` and `trajectories/` hold what a rerun must repeat, so no times;
`timings.jsonl` and `events.jsonl` hold the rest.
"""

from __future__ import annotations

import io
import json
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import asdict

from areal_core.data import Batch, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.errors import InputError
from areal_core.pipeline.events import Event
from areal_core.pipeline.lines import Lines
from areal_core.spec.secrets import without_secrets

STEPS_A_FILE = 100
"""Steps that share a file of trajectories."""


class RunDirectory:
    """Where a run is written. A run that goes on from step `step` forgets what came after it, but for events."""

    def __init__(self, path: Path, step: int = 0) -> None:
        self.path = path
        try:
            self._open(step)
        except OSError as error:
            problem = f"cannot hold a run: {error.strerror}"
            raise InputError(error.filename or str(path), problem, "choose another directory by --run-dir") from error

    def _open(self, step: int) -> None:
        path = self.path
        for folder in ("checkpoints", "logs", "trajectories"):
            (path / folder).mkdir(parents=True, exist_ok=True)
        self.events = Lines(path / "events.jsonl")
        self.metrics = Lines(path / "metrics.jsonl", step)
        self.timings = Lines(path / "timings.jsonl", step)
        self.evaluations = Lines(path / "evaluations.jsonl", step)
        self._trajectories: list[Lines] = []
        """Those that are not synced since they were full, and at last the one that is being written."""
        self._cut_trajectories(step)

    def rewind(self, step: int) -> None:
        """Go on from `step` another way."""
        for lines in (self.metrics, self.timings, self.evaluations, *self._trajectories):
            lines.rewind(step)
        self._close_trajectories()
        self._cut_trajectories(step)

    @property
    def checkpoints(self) -> Path:
        """Holds a `step-N` a checkpoint."""
        return self.path / "checkpoints"

    def describe(self, spec: Mapping[str, Any], provenance: Mapping[str, Any]) -> None:
        """Write the resolved spec, as it may be shown, and where everything came from; each resume is added."""
        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        yaml.default_flow_style = False
        yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # keeps the spec's order
        text = io.StringIO()
        yaml.dump(dict(spec), text)
        _replace(self.path / "spec.yaml", text.getvalue().encode())
        path = self.path / "provenance.json"
        facts = {**provenance, "python": platform.python_version(), "system": platform.platform(), **_git()}
        if path.exists():
            first = provenance_of(path)
            facts = {**first, "resumed": [*first.get("resumed", []), facts]}
        _replace(path, json.dumps(without_secrets(facts), indent=2, default=str).encode() + b"\n")

    def event(self, event: Event, elapsed: float) -> None:
        """Keep an event, with the seconds since the run's start; without room for it it is only told, and logged."""
        with suppress(OSError):
            self.events.add({"seconds": round(elapsed, 3), **asdict(event, recurse=False)})

    def trained(self, batch: Batch) -> None:
        """Keep the trajectories of a batch, one line a group."""
        path = self._trajectory_file(batch.step)
        if not self._trajectories or self._trajectories[-1].path != path:
            if self._trajectories:
                self._trajectories[-1].close()
            self._trajectories.append(Lines(path, batch.step))
        self._trajectories[-1].extend(_group_line(group, batch.step + 1) for group in batch.groups)

    def sync(self) -> None:
        """Have on disk what was written, so that a checkpoint never outlives the lines of its steps. Blocks."""
        trajectories = tuple(self._trajectories)
        for lines in (self.metrics, self.timings, self.evaluations, *trajectories):
            lines.sync()
        for lines in trajectories[:-1]:
            lines.close()
            self._trajectories.remove(lines)

    def close(self) -> None:
        """Close the files."""
        self._close_trajectories()
        for lines in (self.metrics, self.timings, self.evaluations, self.events):
            lines.close()

    def _trajectory_file(self, step: int) -> Path:
        first = step // STEPS_A_FILE * STEPS_A_FILE
        return self.path / "trajectories" / f"steps-{first + 1:07d}-{first + STEPS_A_FILE:07d}.jsonl"

    def _cut_trajectories(self, step: int) -> None:
        for path in sorted((self.path / "trajectories").glob("steps-*.jsonl")):
            if path > self._trajectory_file(step):
                path.unlink()
            elif path == self._trajectory_file(step):  # what is before it has no later steps
                Lines(path, step).close()

    def _close_trajectories(self) -> None:
        for lines in self._trajectories:
            lines.close()
        self._trajectories.clear()


def _group_line(group: TrajectoryGroup, step: int) -> dict[str, Any]:
    return {
        "step": step,
        "sequence": group.sequence,
        "environment": group.task.environment,
        "split": group.task.split,
        "index": group.task.index,
        "prompt": group.trajectories[0].prompt,
        "trajectories": [_trajectory_line(trajectory) for trajectory in group],
    }


@lru_cache(maxsize=256)
def _version(code: int) -> str:
    return str(WeightVersion.from_code(code))


def _trajectory_line(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "member": trajectory.member,
        "reward": trajectory.reward,
        "scores": dict(trajectory.scores),
        "finish": trajectory.finish,
        "length": trajectory.trained_units,
        "version": None if trajectory.oldest is None else _version(trajectory.oldest),
        "answer": trajectory.answer,
    }


def provenance_of(path: Path) -> dict[str, Any]:
    """What a run's `provenance.json` says.

    Raises:
        InputError: it is damaged.

    """
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(facts, dict):
            raise TypeError("it is no mapping")
    except (OSError, ValueError, TypeError) as error:
        way_out = 'put {"model": ""} there, or the model that the run began with instead of the spec\'s'
        raise InputError(str(path), f"is damaged: {type(error).__name__}: {error}", way_out) from error
    return facts


def _replace(path: Path, content: bytes) -> None:
    """A kill meanwhile leaves the file as it was."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_bytes(content)
    fresh.replace(path)


def _git() -> dict[str, Any]:
    """The commit that is checked out here, and whether files differ from it; nothing outside a repository."""
    try:
        commit = _run("git", "rev-parse", "HEAD")
        return {"git": {"commit": commit, "dirty": bool(_run("git", "status", "--porcelain"))}}
    except (OSError, subprocess.CalledProcessError):
        return {"git": None}


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603  fixed words
