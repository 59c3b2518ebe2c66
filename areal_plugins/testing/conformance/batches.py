"""Batches of random trajectories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from areal_core.data import NO_VERSION, Batch, Finish, TaskRef, Trajectory, TrajectoryGroup, WeightVersion


def trajectory(
    prompt: Sequence[int] | np.ndarray,
    answer: Sequence[int] | np.ndarray,
    *,
    member: int = 0,
    reward: float = 0.0,
    mask: Sequence[int] | np.ndarray | None = None,
    logprobs: float = -1.5,
    step: int = 3,
    finish: Finish = "stop",
) -> Trajectory:
    """One rollout, all of whose drawn tokens have one log-probability and the version of `step`."""
    tokens = np.array([*prompt, *answer], dtype=np.int32)
    drawn = np.array([0] * len(prompt) + list([1] * len(answer) if mask is None else mask), dtype=np.uint8)
    columns: dict[str, np.ndarray] = {
        "tokens": tokens,
        "mask": drawn,
        "logprobs": (drawn * logprobs).astype(np.float32),
        "versions": np.where(drawn, WeightVersion(0, step).code, NO_VERSION).astype(np.int64),
    }
    return Trajectory(member, columns, len(prompt), reward, finish)


def batch(groups: Sequence[Sequence[Trajectory]], step: int = 3) -> Batch:
    """The groups, in order."""
    return Batch(step, tuple(TrajectoryGroup(i, TaskRef("e", "train", i), tuple(g)) for i, g in enumerate(groups)))


def random_batch(
    rng: np.random.Generator,
    groups: int = 3,
    members: int = 4,
    prompt: int = 5,
    answer: int = 7,
    step: int = 3,
    vocabulary: int = 13,
) -> Batch:
    """Lengths and rewards differ; some tokens inside answers are not drawn by the policy."""

    def group() -> list[Trajectory]:
        shared = rng.integers(0, vocabulary, int(rng.integers(1, prompt + 1)))
        return [_random_member(rng, shared, member, answer, step, vocabulary) for member in range(members)]

    return batch([group() for _ in range(groups)], step)


def _random_member(
    rng: np.random.Generator, shared: np.ndarray, member: int, longest: int, step: int, vocabulary: int
) -> Trajectory:
    tokens = rng.integers(0, vocabulary, int(rng.integers(1, longest + 1)))
    mask = (rng.random(len(tokens)) < 0.8).astype(int)
    mask[-1] = 1
    return trajectory(
        shared,
        tokens,
        member=member,
        reward=float(rng.random()),
        mask=mask,
        logprobs=-float(rng.random()) * 3,
        step=step - int(rng.integers(0, 3)),
    )
