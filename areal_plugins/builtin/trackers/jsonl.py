"""Collected trajectories as JSON lines: `trajectories/rollouts-FIRST-LAST.jsonl`, by the group's sequence.

One object a trajectory, whether or not it is trained on later:

    sequence, member     the group's place in the order of submission, and the trajectory's in it
    task                 {environment, split, index}
    reward, scores       the verdict and its named parts; null where not finite
    finish               stop, length or abort
    prompt, answer       text
    prompt_length        leading tokens that all members of the group share
    tokens               ids of prompt and answer
    versions             the version that drew each token, run-length encoded as [version, count] pairs;
                         null for tokens that no policy drew (prompts, a tool's answer)

The groups of a file are in the order in which they were finished. What a resumed run collects again
is written again: of several lines with the same `sequence` and `member` the last one holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np

from areal_core.contexts import TrackerContext
from areal_core.data import NO_VERSION, Trajectory, TrajectoryGroup, WeightVersion
from areal_plugins.builtin.trackers import JsonlOptions

GROUPS_A_FILE = 1000
"""Groups that share a file."""


class JsonlTracker:
    """Writes trajectories; figures are the pipeline's to write, into `metrics.jsonl` and `evaluations.jsonl`."""

    def __init__(self, options: JsonlOptions, context: TrackerContext) -> None:
        self._tokens = options.tokens
        self._folder = context.run.directory / "trajectories"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._path: Path | None = None
        self._file: BinaryIO | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing: see the class."""

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Nothing: see the class."""

    def group(self, group: TrajectoryGroup) -> None:
        records = (record(group, trajectory, self._tokens) for trajectory in group)
        file = self._open(group.sequence)
        file.write(b"".join(msgspec.json.encode(each) + b"\n" for each in records))
        file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._path = self._file = None

    def _open(self, sequence: int) -> BinaryIO:
        first = sequence // GROUPS_A_FILE * GROUPS_A_FILE
        path = self._folder / f"rollouts-{first:08d}-{first + GROUPS_A_FILE - 1:08d}.jsonl"
        if self._file is None or path != self._path:
            self.close()
            self._path, self._file = path, append(path)
        return self._file


def append(path: Path) -> BinaryIO:
    """`path` opened to go on after its last whole line, for a killed run can leave half of one."""
    file = path.open("r+b" if path.exists() else "w+b")
    file.seek(file.read().rfind(b"\n") + 1)
    file.truncate()
    return file


def record(group: TrajectoryGroup, trajectory: Trajectory, tokens: bool = True) -> dict[str, Any]:
    """One trajectory as in the module's description, `tokens` and `versions` where it has them and they are wanted."""
    task = group.task
    columns = trajectory.columns if tokens else {}
    return {
        "sequence": group.sequence,
        "member": trajectory.member,
        "task": {"environment": task.environment, "split": task.split, "index": task.index},
        "reward": trajectory.reward,
        "scores": trajectory.scores,
        "finish": trajectory.finish,
        "prompt": trajectory.prompt,
        "answer": trajectory.answer,
        "prompt_length": trajectory.prompt_length,
        **({"tokens": columns["tokens"].tolist()} if "tokens" in columns else {}),
        **({"versions": run_lengths(columns["versions"])} if "versions" in columns else {}),
    }


def run_lengths(versions: np.ndarray) -> list[tuple[str | None, int]]:
    """Version codes [N] as runs: `[(None, 3), ("0.7", 2)]`."""
    return [(_name(code), sum(1 for _ in run)) for code, run in groupby(versions.tolist())]


def _name(code: int) -> str | None:
    return None if code == NO_VERSION else str(WeightVersion.from_code(code))
