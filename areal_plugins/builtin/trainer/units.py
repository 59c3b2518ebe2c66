"""A batch as flat columns: the arrays an objective sees, and where each trained unit's token stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from attrs import frozen

from areal_core.batch import BatchArrays
from areal_core.data import NO_VERSION, Batch, Trajectory
from areal_core.errors import InputError

_STEP_BITS = (1 << 40) - 1
"""The step inside a version's code, see `areal_core.data.WeightVersion`."""


@frozen(eq=False)
class Units:
    """The S trajectories of a batch, one after another.

    `tokens` [N] holds all of them whole, prompts too; trajectory s is `tokens[starts[s]:]`, of which
    the model must read the first `needed[s]` (all before its last trained unit). Of the T units that
    objectives see (`arrays`), `trained` [t] are trained on; `position` [t] is each one's place in its
    trajectory, `owner` [t] the trajectory, and `drawn` [t] says whether a policy drew it (no
    demonstration). `lengths` [S] counts trained units; `members` are the trajectories of each group.
    """

    arrays: BatchArrays
    tokens: np.ndarray
    starts: np.ndarray
    needed: np.ndarray
    trained: np.ndarray
    position: np.ndarray
    owner: np.ndarray
    drawn: np.ndarray
    lengths: np.ndarray
    members: tuple[np.ndarray, ...]

    @property
    def targets(self) -> np.ndarray:
        """[t] the token drawn at each trained unit."""
        drawn: np.ndarray = self.tokens[self.starts[self.owner] + self.position]
        return drawn


def flatten(batch: Batch) -> Units:
    """The columns of `batch`.

    Raises:
        InputError: a column is missing or of another length, or a unit is trained on that is part
            of the prompt; names the trajectory.

    """
    trajectories = batch.trajectories
    if not trajectories:
        raise InputError(f"batch {batch.step}", "it has no trajectories")
    sizes = np.array([len(t) for t in trajectories])
    names = ("tokens", "mask", "logprobs", "versions")
    columns = {name: _concatenated(batch, trajectories, sizes, name) for name in names}
    starts = np.cumsum(sizes) - sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(owner)) - starts[owner]
    seen = position >= np.array([t.prompt_length for t in trajectories])[owner]
    masked = columns["mask"] != 0
    _check_prompts(batch, owner[masked & ~(seen & (position > 0))])

    at = np.flatnonzero(masked)
    drawn = masked & (columns["versions"] != NO_VERSION)
    needed = np.zeros(len(sizes), dtype=np.int64)
    needed[owner[at]] = position[at]  # ascending within a trajectory: the last one stays
    return Units(
        arrays=_arrays(batch, columns, drawn, owner, seen),
        tokens=columns["tokens"].astype(np.int64),
        starts=starts,
        needed=needed,
        trained=np.flatnonzero(masked[seen]),
        position=position[at],
        owner=owner[at],
        drawn=drawn[at],
        lengths=np.bincount(owner[at], minlength=len(sizes)),
        members=tuple(np.split(np.arange(len(sizes)), np.cumsum([len(g.trajectories) for g in batch.groups])[:-1])),
    )


def _arrays(
    batch: Batch, columns: Mapping[str, np.ndarray], drawn: np.ndarray, owner: np.ndarray, seen: np.ndarray
) -> BatchArrays:
    """What objectives see: of all N units those that are `seen`."""
    lag = np.where(drawn, batch.step - (columns["versions"] & _STEP_BITS), 0)
    counts = [len(group.trajectories) for group in batch.groups]
    return BatchArrays(
        step=batch.step,
        rewards=np.array([t.reward for t in batch.trajectories], dtype=np.float64),
        group=np.repeat(np.arange(len(counts)), counts),
        truncated=np.array([t.finish == "length" for t in batch.trajectories]),
        trajectory=owner[seen],
        mask=(columns["mask"][seen] != 0).astype(np.float64),
        behaviour=columns["logprobs"][seen].astype(np.float64),
        lag=lag[seen],
    )


def _concatenated(batch: Batch, trajectories: Sequence[Trajectory], sizes: np.ndarray, name: str) -> np.ndarray:
    try:
        parts = [t.columns[name] for t in trajectories]
    except KeyError:
        raise InputError(f"batch {batch.step}", f"a trajectory has no column {name!r}") from None
    wrong = np.flatnonzero(np.fromiter(map(len, parts), np.int64, len(parts)) != sizes)
    if wrong.size:
        at = wrong[0]
        problem = f"column {name!r} has {len(parts[at])} entries for {sizes[at]} tokens"
        raise InputError(f"batch {batch.step}: trajectory {at} (member {trajectories[at].member})", problem)
    return np.concatenate(parts)


def _check_prompts(batch: Batch, wrong: np.ndarray) -> None:
    if wrong.size:
        trajectory = batch.trajectories[wrong[0]]
        where = f"batch {batch.step}: trajectory {wrong[0]} (member {trajectory.member})"
        raise InputError(where, "a unit of the prompt, or one with nothing before it, is marked to be trained on")
