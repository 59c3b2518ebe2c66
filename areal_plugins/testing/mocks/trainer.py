"""A trainer whose weights are the number of its steps."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from areal_core.contexts import OptimizerContext, StagePlan, TrainerContext
from areal_core.data import NO_VERSION, Batch, Trajectory, WeightVersion
from areal_plugins.testing.mocks import TrainerOptions, model
from areal_plugins.testing.mocks.engine import spell


def make(options: TrainerOptions, context: TrainerContext) -> MockTrainer:
    """The factory."""
    return MockTrainer(options, context)


def make_optimizer(_options: object, context: OptimizerContext) -> None:
    """The factory of the optimizer that does nothing."""


class MockTrainer:
    """Besides its steps it keeps a checksum of everything it was trained on, in order."""

    def __init__(self, options: TrainerOptions, context: TrainerContext) -> None:
        self._options = options
        self._steps = model.read(context.model)
        self._digest = 0
        self._stage = ""

    def begin_stage(self, stage: StagePlan) -> None:
        self._stage = stage.name

    def train(self, batch: Batch) -> Mapping[str, float]:
        if batch.step == self._options.fails_at:
            raise RuntimeError(f"told to fail at step {batch.step}")
        if batch.step != self._steps:
            raise ValueError(f"batch {batch.step} for a trainer that has done {self._steps} steps")
        for trajectory in batch.trajectories:
            _examine(trajectory)
            self._digest = _mix(self._digest, trajectory)
        self._steps += 1
        return {"loss": 1.0 / self._steps, "digest": float(self._digest), "mismatch": 0.0}

    def weights(self) -> Iterator[tuple[str, Any]]:
        yield "steps", np.array([self._steps], dtype=np.int64)

    def save_model(self, directory: Path) -> None:
        model.write(directory, self._steps)

    def save_state(self, directory: Path) -> None:
        (directory / "state.json").write_text(json.dumps({"steps": self._steps, "digest": self._digest}))

    def load_state(self, directory: Path) -> None:
        state = json.loads((directory / "state.json").read_text())
        self._steps, self._digest = state["steps"], state["digest"]

    def close(self) -> None:
        """Nothing to free."""


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
