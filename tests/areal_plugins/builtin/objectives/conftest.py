"""Small batches in float64, and an objective's loss and gradient over any split into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from attrs import evolve, frozen

from areal_core.batch import BatchArrays, LossInputs
from areal_core.contexts import ObjectiveContext
from areal_core.protocols import Objective
from areal_plugins.builtin.objectives import DESCRIPTORS

CONTEXT = ObjectiveContext(temperature=1.0, max_new_tokens=8, batch_size=8, group_size=4)


def _objective(name: str, **options: Any) -> Objective:
    descriptor = next(d for d in DESCRIPTORS if d.name == name)
    module, attribute = descriptor.factory.split(":")
    made: Objective = getattr(import_module(module), attribute)(descriptor.options(**options), CONTEXT)
    return made


def _batch(
    rewards: Sequence[float],
    group: Sequence[int],
    masks: Sequence[Sequence[int]],
    truncated: Sequence[bool] | None = None,
    seed: int = 0,
) -> BatchArrays:
    """Trajectories with these masks; the log-probabilities and values are drawn from `seed`."""
    rng = np.random.default_rng(seed)
    mask = np.array([m for each in masks for m in each], dtype=np.float64)
    total = len(mask)
    return BatchArrays(
        step=0,
        rewards=np.array(rewards, dtype=np.float64),
        group=np.array(group, dtype=np.int64),
        truncated=np.array(truncated if truncated is not None else [False] * len(rewards), dtype=bool),
        trajectory=np.repeat(np.arange(len(rewards)), [len(each) for each in masks]),
        mask=mask,
        behaviour=np.where(mask > 0, -rng.uniform(0.1, 3.0, total), 0.0),
        lag=np.zeros(total, dtype=np.int64),
        reference=-rng.uniform(0.1, 3.0, total),
        values=rng.normal(size=total),
    )


@frozen(eq=False)
class Outcome:
    """A batch's loss, its gradients [T], and the metrics summed over micro-batches."""

    loss: float
    logp: np.ndarray
    entropy: np.ndarray
    values: np.ndarray
    metrics: dict[str, float]


@frozen(eq=False)
class Policies:
    """What the trainer computes of a batch, [T] each."""

    logp: np.ndarray
    proximal: np.ndarray
    entropy: np.ndarray
    values: np.ndarray


def _policies(arrays: BatchArrays, seed: int = 1, drift: float = 0.4) -> Policies:
    """Policies that have moved away from the behaviour policy by about `drift` a token."""
    rng = np.random.default_rng(seed)
    total = len(arrays.mask)
    proximal = arrays.behaviour + rng.normal(scale=drift, size=total)
    assert arrays.values is not None
    return Policies(
        logp=proximal + rng.normal(scale=drift, size=total),
        proximal=proximal,
        entropy=rng.uniform(0.0, 2.0, total),
        values=arrays.values + rng.normal(scale=drift, size=total),
    )


def _outcome(
    objective: Objective,
    arrays: BatchArrays,
    policies: Policies,
    parts: Sequence[Sequence[int]] | None = None,
    weigh: float = 1.0,
) -> Outcome:
    """The loss over micro-batches `parts` of whole trajectories (one of all when left out)."""
    targets = objective.targets(arrays)
    leaves = {name: torch.tensor(getattr(policies, name), requires_grad=True) for name in ("logp", "entropy", "values")}
    constants = {
        "proximal": policies.proximal,
        "behaviour": arrays.behaviour,
        "advantages": targets.advantages,
        "weights": targets.weights * weigh,
        "mask": arrays.mask,
        "lag": arrays.lag,
        "reference": arrays.reference,
        "old_values": arrays.values,
        "returns": targets.returns if targets.returns is not None else np.zeros_like(arrays.mask),
    }
    total, metrics = torch.zeros((), dtype=torch.float64), dict[str, float]()
    for part in parts if parts is not None else [range(len(arrays.rewards))]:
        rows = np.concatenate([np.flatnonzero(arrays.trajectory == s) for s in part] or [np.zeros(0, dtype=np.int64)])
        local = np.repeat(np.arange(len(part)), [int((arrays.trajectory == s).sum()) for s in part])
        inputs = LossInputs(
            **{name: leaf[torch.from_numpy(rows)] for name, leaf in leaves.items()},
            **{name: torch.from_numpy(np.asarray(column)[rows]) for name, column in constants.items()},
            trajectory=torch.from_numpy(local),
        )
        loss, sums = objective.loss(inputs)
        total = total + loss
        metrics = {name: metrics.get(name, 0.0) + float(value.detach()) for name, value in sums.items()}
    total.backward()
    grads = {
        name: np.zeros(len(arrays.mask)) if leaf.grad is None else leaf.grad.numpy() for name, leaf in leaves.items()
    }
    return Outcome(loss=float(total.detach()), metrics=metrics, **grads)


def _rearranged(arrays: BatchArrays, policies: Policies, order: Sequence[int]) -> tuple[BatchArrays, Policies]:
    """The same batch with its trajectories in another order."""
    rows = np.concatenate([np.flatnonzero(arrays.trajectory == s) for s in order])
    units = ("mask", "behaviour", "lag", "reference", "values")
    moved = evolve(
        arrays,
        **{name: getattr(arrays, name)[list(order)] for name in ("rewards", "group", "truncated")},
        **{name: getattr(arrays, name)[rows] for name in units},
        trajectory=np.repeat(np.arange(len(order)), [int((arrays.trajectory == s).sum()) for s in order]),
    )
    columns = ("logp", "proximal", "entropy", "values")
    return moved, Policies(**{name: getattr(policies, name)[rows] for name in columns})


@pytest.fixture(scope="session")
def objective() -> Callable[..., Objective]:
    return _objective


@pytest.fixture(scope="session")
def batch() -> Callable[..., BatchArrays]:
    return _batch


@pytest.fixture(scope="session")
def policies() -> Callable[..., Policies]:
    return _policies


@pytest.fixture(scope="session")
def outcome() -> Callable[..., Outcome]:
    return _outcome


@pytest.fixture(scope="session")
def rearranged() -> Callable[..., tuple[BatchArrays, Policies]]:
    return _rearranged
