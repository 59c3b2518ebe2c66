"""What the controller itself costs a trajectory: a whole run of workers that do next to nothing, less what they do.

The workers' share is measured by the same calls without a controller, as many at once, with as many of their answers
kept as a run keeps, and searched for cycles as seldom: that memory is not in the cache any more where much is under way
is their cost as well.
"""

from __future__ import annotations

import asyncio
import gc
import json
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from attrs import frozen

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.data import (
    EngineStats,
    Sampling,
    TaskRef,
    Trajectory,
    TrajectoryGroup,
    WeightOffer,
    WeightVersion,
)
from areal_core.pipeline.clock import VirtualLoop
from areal_core.pipeline.compose import compose
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.garbage import seldom_searched
from areal_core.spec import load_experiment
from areal_core.workers.plans import GroupOrder, GroupResult, TrainResult
from areal_core.workers.seeds import derive
from areal_plugins import ExecutorCapabilities, ExecutorDescriptor, hookimpl
from areal_plugins.simulate.plan import Silent
from areal_plugins.simulate.workers import Handle

GROUP, UNITS = 8, 64
A_DEVICE = 16
"""Trajectories of a batch for each device."""
SLOTS, STALENESS = 64, 4
"""Answers that an engine draws at once, and the bound."""

_SPAN = float(1 << 63)


@frozen
class Cost:
    """Seconds of processor time a trajectory: the controller's own, and the workers'."""

    own: float
    mocks: float

    @property
    def per_second(self) -> float:
        """Trajectories that one core gets through."""
        return 1 / self.own


class Idle:
    """Any worker: a group takes a drawn time and returns the same answers, a step a second."""

    def __init__(self, version: list[int]) -> None:
        self._version = version
        self._cache: dict[int, tuple[Trajectory, ...]] = {}

    async def materialize(self, plan: Any) -> str:
        return str(plan.work)

    async def size(self, environment: str, split: str) -> int | None:
        return None if split == "train" else 0

    async def run_group(self, order: GroupOrder) -> GroupResult:
        version = self._version[0]
        await asyncio.sleep(1.0 + 9.0 * derive(order.seed, 1) / _SPAN)
        members = tuple(_answer(member, version) for member in order.members)
        return GroupResult(TrajectoryGroup(order.sequence, order.task, members))

    async def train(self, batch: Any) -> TrainResult:
        await asyncio.sleep(1.0)
        return TrainResult({"loss": 0.0}, 1.0)

    async def publish(self, version: WeightVersion) -> WeightOffer:
        return WeightOffer(version, "mock", "tensors")

    async def commit(self, version: WeightVersion) -> None:
        self._version[0] = version.code

    async def stats(self) -> EngineStats:
        return EngineStats()

    async def save_model(self, directory: str) -> None:
        await asyncio.to_thread(_write, Path(directory) / "config.json")

    async def save_state(self, directory: str) -> None:
        await asyncio.to_thread(_write, Path(directory) / "state.json")


def _write(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{}")


_TOKENS, _MASK = np.zeros(UNITS, np.int32), np.ones(UNITS, np.uint8)
_LOGPROBS = np.zeros(UNITS, np.float32)


def _answer(member: int, version: int) -> Trajectory:
    columns = {
        "tokens": _TOKENS, "mask": _MASK, "logprobs": _LOGPROBS, "versions": np.full(UNITS, version, np.int64),
    }  # fmt: skip
    return Trajectory(member, columns, 0, float(member & 1), "stop", prompt="a prompt", answer="an answer")


class IdleExecutor:
    """Starts them; all serve the version that was committed last."""

    def __init__(self) -> None:
        self._version = [0]

    async def start(self, spec: WorkerSpec) -> Handle:
        return Handle(spec, Idle(self._version))

    async def close(self) -> None:
        """Nothing to end."""


def make(_options: object, _context: ExecutorContext) -> IdleExecutor:
    """The factory."""
    return IdleExecutor()


@hookimpl
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    """Register `idle`."""
    return (
        ExecutorDescriptor(
            name="idle", summary="workers that do next to nothing", factory=f"{__name__}:make", automatic=False,
            capabilities=ExecutorCapabilities(processes=True),
        ),
    )  # fmt: skip


def spec(devices: int, steps: int) -> dict[str, Any]:
    """Three engines to one trainer."""
    return {
        "name": "idle",
        "plugins": [str(Path(__file__).resolve()), "areal_plugins.testing.mocks"],
        "model": "mock",
        "platform": {"type": "mock", "mock": {"devices": devices}},
        "executor": "idle",
        "resources": {
            "train": {"num_gpus": devices // 4, "parallel": "dp"},
            "infer": {"num_gpus": devices * 3 // 4, "parallel": "dp"},
            "rollout": {"cpus": max(1, devices // 8)},
        },
        "inference": {"type": "mock", "max_concurrent": SLOTS},
        "training": {"backend": "mock", "batch_size": A_DEVICE * devices, "max_steps": steps, "optimizer": "mock"},
        "weights": "mock",
        "objective": {"type": "mock", "group_size": GROUP},
        "environments": [{"name": "idle", "type": "mock"}],
        "pipeline": {"max_staleness": STALENESS},
        "evaluation": {"before": False, "after": False},
        "trackers": [],
    }


def medians(scales: Sequence[int], rounds: int) -> Iterator[tuple[int, Cost]]:
    """The cost at each scale: medians of rounds through all of them, because a shared machine is slow for a while."""
    found = [[measure(devices) for devices in scales] for _ in range(rounds)]
    for devices, costs in zip(scales, zip(*found, strict=True), strict=True):
        yield devices, Cost(median(cost.own for cost in costs), median(cost.mocks for cost in costs))


def measure(devices: int, trajectories: int = 120_000) -> Cost:
    """Run a few steps, and as many more as `trajectories` take, so that starting and ending do not count.

    At least as many more as the few, so that the difference stands out from what the machine's other load does to both.
    """
    few = 5  # all that the bound has room for is under way
    many = few + max(few, trajectories // (A_DEVICE * devices))
    count = (many - few) * A_DEVICE * devices
    spent = _controlled(devices, many) - _controlled(devices, few)
    drawn = SLOTS * (devices * 3 // 4) // GROUP
    kept = (1 + STALENESS) * A_DEVICE * devices // GROUP - drawn
    mocks = _alone(count // GROUP, drawn, kept)
    return Cost((spent - mocks) / count, mocks / count)


def _controlled(devices: int, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "idle.yaml"
        source.write_text(json.dumps(spec(devices, steps)))
        experiment = load_experiment(str(source))

        async def run() -> None:
            await Controller(compose(experiment, Path(folder) / "run", debug=True), Silent()).run()

        gc.collect()
        began = time.process_time()
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(run())
        return time.process_time() - began


def _alone(groups: int, at_once: int, kept: int) -> float:
    """The workers' part of so many groups, so many `at_once`, while the last `kept` of them are not forgotten."""
    answers: deque[GroupResult] = deque(maxlen=kept)

    async def run() -> None:
        handle = await IdleExecutor().start(WorkerSpec("rollout-0", "rollout", None))  # type: ignore[arg-type]
        numbers = iter(range(groups))
        await asyncio.gather(*(_ask(handle, numbers, answers) for _ in range(min(groups, at_once))))

    gc.collect()
    began = time.process_time()
    with seldom_searched(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
    return time.process_time() - began


async def _ask(handle: Handle, numbers: Iterator[int], answers: deque[GroupResult]) -> None:
    for number in numbers:
        task = TaskRef("idle", "train", number)
        order = GroupOrder(number, task, tuple(range(GROUP)), Sampling(), derive(0, number))
        answers.append(await handle.call("run_group", order))
