"""The files of a run directory that grow line by line, and the two that say what the run is.

`metrics.jsonl`, `evaluations.jsonl` and `trajectories/` hold what a rerun must repeat, so no times;
`timings.jsonl` and `events.jsonl` hold the rest.
"""

from __future__ import annotations

import io
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
from attrs import asdict

from areal_core.data import Batch, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.pipeline.events import Event
from areal_core.spec.secrets import without_secrets

STEPS_A_FILE = 100
"""Steps that share a file of trajectories."""

_encode = msgspec.json.Encoder().encode


class RunDirectory:
    """Where a run is written. A run that goes on from step `step` forgets what came after it, but for events."""

    def __init__(self, path: Path, step: int = 0) -> None:
        self.path = path
        for folder in ("checkpoints", "logs", "trajectories"):
            (path / folder).mkdir(parents=True, exist_ok=True)
        self.events = Lines(path / "events.jsonl")
        self._trajectories: Lines | None = None
        self._open(step)

    def rewind(self, step: int) -> None:
        """Go on from `step` another way."""
        self._close_steps()
        self._open(step)

    @property
    def checkpoints(self) -> Path:
        """Holds a `step-N` a checkpoint."""
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        """Holds a file a worker."""
        return self.path / "logs"

    @property
    def work(self) -> Path:
        """What workers keep for themselves."""
        return self.path / "work"

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
            first = json.loads(path.read_text())
            facts = {**first, "resumed": [*first.get("resumed", []), facts]}
        _replace(path, json.dumps(without_secrets(facts), indent=2, default=str).encode() + b"\n")

    def event(self, event: Event, elapsed: float) -> None:
        """Keep an event, with the seconds since the run's start."""
        self.events.add({"seconds": round(elapsed, 3), **asdict(event, recurse=False)})

    def trained(self, batch: Batch) -> None:
        """Keep the trajectories of a batch, one line a group."""
        path = self._trajectory_file(batch.step)
        if self._trajectories is None or self._trajectories.path != path:
            self._close_trajectories()
            self._trajectories = Lines(path, batch.step)
        self._trajectories.extend(_group_line(group, batch.step + 1) for group in batch.groups)

    def sync(self) -> None:
        """Have on disk what was written, so that a checkpoint never outlives the lines of its steps."""
        for lines in (self.metrics, self.timings, self.evaluations, self._trajectories):
            if lines is not None:
                lines.sync()

    def close(self) -> None:
        """Close the files."""
        self._close_steps()
        self.events.close()

    def _open(self, step: int) -> None:
        self.metrics = Lines(self.path / "metrics.jsonl", step)
        self.timings = Lines(self.path / "timings.jsonl", step)
        self.evaluations = Lines(self.path / "evaluations.jsonl", step)
        self._cut_trajectories(step)

    def _close_steps(self) -> None:
        for lines in (self.metrics, self.timings, self.evaluations):
            lines.close()
        self._close_trajectories()

    def _trajectory_file(self, step: int) -> Path:
        first = step // STEPS_A_FILE * STEPS_A_FILE
        return self.path / "trajectories" / f"steps-{first + 1:07d}-{first + STEPS_A_FILE:07d}.jsonl"

    def _cut_trajectories(self, step: int) -> None:
        for path in sorted((self.path / "trajectories").glob("steps-*.jsonl")):
            if path > self._trajectory_file(step):
                path.unlink()
            else:
                _cut(path, step)

    def _close_trajectories(self) -> None:
        if self._trajectories is not None:
            self._trajectories.close()
            self._trajectories = None


class Lines:
    """A file of JSON objects, one a line, each on disk as soon as it is added.

    Floats keep every bit; what is not finite becomes null.
    """

    def __init__(self, path: Path, step: int | None = None) -> None:
        """Continue `path`; forget a line that is not whole, and with `step` the lines after it."""
        self.path = path
        if path.exists():
            _cut(path, step)
        self._file = path.open("ab")

    def add(self, line: Mapping[str, Any]) -> None:
        """One line."""
        self.extend([line])

    def extend(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Several lines."""
        self._file.write(b"".join(_encode(line) + b"\n" for line in lines))
        self._file.flush()

    def sync(self) -> None:
        """Have on disk what was added."""
        if not self._file.closed:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


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


def _cut(path: Path, step: int | None) -> None:
    """Keep the whole lines whose step is at most `step`, if given; a kill meanwhile leaves the file as it was."""
    with path.open("rb") as file:
        lines = list(file)  # ends lines at b"\n" alone: texts may hold whatever else Unicode takes for a line's end
    whole = (line for line in lines if line.endswith(b"\n"))
    kept = [line for line in whole if step is None or json.loads(line)["step"] <= step]
    if len(kept) < len(lines):
        _replace(path, b"".join(kept))


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
