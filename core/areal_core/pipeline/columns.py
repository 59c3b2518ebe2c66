"""Groups as a few large arrays and a plain description, and back, to the bit."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from attrs import asdict

from areal_core.data import TaskRef, Trajectory, TrajectoryGroup


def pack(groups: Iterable[TrajectoryGroup]) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
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


def unpack(described: Iterable[Mapping[str, Any]], arrays: Mapping[str, np.ndarray]) -> Iterable[TrajectoryGroup]:
    """The groups that `pack` was given."""
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
