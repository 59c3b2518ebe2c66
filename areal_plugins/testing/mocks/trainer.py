"""A trainer whose weights are the number of its steps."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from areal_core.batch import BatchArrays, Targets
from areal_core.contexts import OptimizerContext, StagePlan, TrainerContext
from areal_core.data import NO_VERSION, Batch, Trajectory, WeightVersion
from areal_core.protocols import Objective
from areal_plugins.builtin.trainer.units import flatten
from areal_plugins.testing.mocks import model
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.engine import spell
from areal_plugins.testing.mocks.options import TrainerOptions


def make(options: TrainerOptions, context: TrainerContext) -> MockTrainer:
    """The factory."""
    return MockTrainer(options, context)


class MockTrainer:
    """Besides its steps it keeps a checksum of everything it was trained on, in order.

    It asks the stage's objective for its targets, and the optimizer for steps where it is told to.
    """

    def __init__(self, options: TrainerOptions, context: TrainerContext) -> None:
        self._options, self._conduct = options, Conduct(options)
        self._steps = model.read(context.model)
        self._digest = self._calls = 0
        self._stage: StagePlan | None = None
        self._descent: _Descent | None = None

    def begin_stage(self, stage: StagePlan) -> None:
        self._conduct.act_here("begin_stage")
        self._stage = stage
        self._descent = _Descent(stage) if self._options.optimizes else None

    def train(self, batch: Batch) -> Mapping[str, float]:
        self._conduct.act_here("train")
        if batch.step != self._steps:
            raise ValueError(f"batch {batch.step} for a trainer that has done {self._steps} steps")
        for trajectory in batch.trajectories:
            _examine(trajectory)
            self._digest = _mix(self._digest, trajectory)
        figures = _aim(self._stage.objective, batch) if self._stage is not None else {}
        if self._descent is not None:
            figures["distance"] = self._descent.step()
        self._steps += 1
        figures |= self._gradient(batch.grad_limit)
        return {**figures, "loss": 1.0 / self._steps, "digest": float(self._digest), "mismatch": 0.0}

    def _gradient(self, limit: float | None) -> dict[str, float]:
        """What a step says of its gradient; its own count of steps goes on even where it says that it was skipped."""
        self._calls += 1
        norm = 1000.0 if self._calls in self._options.exploding else 1.0
        if self._calls in self._options.nonfinite:
            return {"skipped": 1.0}
        exploded = float(limit is not None and norm > limit)
        return {"grad_norm": norm, "skipped": exploded, "exploded": exploded}

    def weights(self) -> Iterator[tuple[str, Any]]:
        yield "steps", np.array([self._steps], dtype=np.int64)

    def save_model(self, directory: Path) -> Callable[[], None]:
        self._conduct.act_here("save_model")
        return partial(self._write_model, directory, self._steps)

    def save_state(self, directory: Path) -> Callable[[], None]:
        self._conduct.act_here("save_state")
        return partial(self._write_state, directory, {"steps": self._steps, "digest": self._digest})

    def load_state(self, directory: Path) -> None:
        self._conduct.act_here("load_state")
        state = json.loads((directory / "state.json").read_text())
        self._steps, self._digest = state["steps"], state["digest"]

    def close(self) -> None:
        """Nothing to free."""

    def _write_model(self, directory: Path, steps: int) -> None:
        self._conduct.act_here("write")
        model.write(directory, steps)

    def _write_state(self, directory: Path, state: Mapping[str, int]) -> None:
        self._conduct.act_here("write")
        (directory / "state.json").write_text(json.dumps(state))


class _Descent:
    """One torch parameter that the stage's optimizer takes from 1 towards 0."""

    def __init__(self, stage: StagePlan) -> None:
        import torch  # only where it is asked for

        self._parameter = torch.nn.Parameter(torch.ones(4))
        plan = stage.optimizer
        self._optimizer = plan.build(OptimizerContext([{"params": [self._parameter]}], plan.learning_rate))

    def step(self) -> float:
        """How far the parameter is from 0 after one more step."""
        self._optimizer.zero_grad()
        self._parameter.square().sum().backward()  # type: ignore[no-untyped-call]  # torch's
        self._optimizer.step()
        return float(self._parameter.detach().norm())


def _aim(objective: Objective, batch: Batch) -> dict[str, float]:
    """The figures of the objective's targets; raises `ValueError` where they do not fit the batch."""
    arrays = _complete(flatten(batch).arrays, objective)
    targets = objective.targets(arrays)
    _fit(targets, len(arrays.trajectory))
    return {name: float(value) for name, value in targets.metrics.items()}


def _complete(arrays: BatchArrays, objective: Objective) -> BatchArrays:
    """With what a reference policy would say, the same as the policy, and a critic, nothing at all."""
    reference = arrays.behaviour if objective.needs_reference else None
    values = np.zeros_like(arrays.behaviour) if objective.needs_critic else None
    return evolve(arrays, reference=reference, values=values)


def _fit(targets: Targets, units: int) -> None:
    for name in ("advantages", "weights", "returns"):
        column = getattr(targets, name)
        if column is None and name == "returns":
            continue
        if np.shape(column) != (units,) or not np.isfinite(column).all():
            raise ValueError(f"the objective's {name} must be {units} finite numbers, one a unit")


def _examine(trajectory: Trajectory) -> None:
    """Raise unless every drawn token spells the version that is said to have drawn it."""
    versions = trajectory.columns["versions"]
    drawn = versions != NO_VERSION
    expected = np.array([spell(WeightVersion.from_code(int(code)).step) for code in versions[drawn]], dtype=np.int32)
    if not np.array_equal(trajectory.columns["tokens"][drawn], expected):
        raise ValueError(f"tokens of {trajectory.prompt!r} are not of the versions they are said to be of")


def _mix(digest: int, trajectory: Trajectory) -> int:
    """A checksum that knows order and content, but not which incarnation of the trainer made the weights."""
    for name in ("tokens", "mask", "logprobs"):
        digest = zlib.crc32(np.ascontiguousarray(trajectory.columns[name]).tobytes(), digest)
    return zlib.crc32(repr((trajectory.member, trajectory.reward, trajectory.finish)).encode(), digest)
