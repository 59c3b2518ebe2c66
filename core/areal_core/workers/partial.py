"""Answers on their way: as trajectories without a verdict, which a checkpoint holds, and back again.

A partial trajectory is the prompt and what was drawn in the model's first turn; finish `abort` says that the
answer goes on, and `answer` is the text of one that is whole.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from areal_core.data import NO_VERSION, Completion, Trajectory, TrajectoryGroup


def interrupted(prompt: np.ndarray, completions: Sequence[Completion]) -> tuple[Trajectory, ...]:
    """What was drawn after `prompt` (int32, [P]) so far, as trajectories."""
    return tuple(
        Trajectory(
            member=completion.index,
            columns=_columns(prompt, completion),
            prompt_length=len(prompt),
            reward=0.0,
            finish=completion.finish,
            answer=completion.text,
        )
        for completion in completions
    )


def continued(group: TrajectoryGroup | None, prompt: np.ndarray, n: int) -> tuple[Completion, ...]:
    """What `n` completions of `prompt` go on from; none where the group answered another prompt, or is of another size.

    An environment that is asked again may ask something else, and then what was drawn is no answer to it.
    """
    if group is None or len(group.trajectories) != n:
        return ()
    asked = group.trajectories[0].columns["tokens"][: group.trajectories[0].prompt_length]
    if not np.array_equal(asked, prompt):
        return ()
    return tuple(_completion(index, trajectory) for index, trajectory in enumerate(group))


def until(group: TrajectoryGroup, version: int) -> TrajectoryGroup:
    """The group without what was drawn by versions of a higher code, and all that follows."""
    return TrajectoryGroup(group.sequence, group.task, tuple(_until(trajectory, version) for trajectory in group))


def _until(trajectory: Trajectory, version: int) -> Trajectory:
    later = np.flatnonzero(trajectory.columns["versions"] > version)
    if not later.size:
        return trajectory
    columns = {name: column[: later[0]] for name, column in trajectory.columns.items()}
    return Trajectory(trajectory.member, columns, trajectory.prompt_length, 0.0, "abort")


def _columns(prompt: np.ndarray, completion: Completion) -> dict[str, np.ndarray]:
    read, drawn = len(prompt), len(completion.tokens)
    return {
        "tokens": np.concatenate([prompt, completion.tokens], dtype=np.int32),
        "mask": np.repeat(np.array([0, 1], np.uint8), [read, drawn]),
        "logprobs": np.concatenate([np.zeros(read, np.float32), completion.logprobs], dtype=np.float32),
        "versions": np.concatenate([np.full(read, NO_VERSION, np.int64), completion.versions], dtype=np.int64),
    }


def _completion(index: int, trajectory: Trajectory) -> Completion:
    tokens, logprobs, versions = (
        trajectory.columns[name][trajectory.prompt_length :] for name in ("tokens", "logprobs", "versions")
    )
    return Completion(index, tokens, logprobs, versions, trajectory.finish, trajectory.answer)
