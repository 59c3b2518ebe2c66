"""How fast the two pools of an experiment are when neither ever waits: its own worker processes, kept full.

The engine always has more requests than rows, of the task's own lengths; the trainer is given one batch
after another, made of the answers. Both are measured alone, and both at once, because pools on one
machine share its memory bus and its caches: what a pool can do beside the other is all that a run can get.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from attrs import evolve, frozen

from areal_core.pipeline.compose import Composition, StageProgram, compose
from areal_core.pipeline.opening import open_executor
from areal_core.spec import load_experiment
from areal_core.workers.plans import TrainResult
from areal_plugins.data import (
    NO_VERSION,
    Batch,
    Completion,
    GenerateRequest,
    TaskRef,
    Trajectory,
    TrajectoryGroup,
    WeightVersion,
)
from areal_plugins.protocols import EngineStats, Worker

SPARE = 2
"""Requests that the engine has for each of its rows."""

Ask = tuple[np.ndarray, int]
"""A prompt's token ids, and how many tokens its answer has."""


@frozen
class Rate:
    """What a pool did in `seconds` without ever waiting."""

    tokens: int
    seconds: float

    @property
    def cost(self) -> float:
        """Seconds a token."""
        return self.seconds / self.tokens


@frozen
class Saturation:
    """Generated and trained tokens: each pool alone, and beside the other one."""

    engine_alone: Rate
    trainer_alone: Rate
    engine: Rate
    trainer: Rate


def saturate(spec: Path, folder: Path, ask: Callable[[int, int], Ask], batches: int, seconds: float) -> Saturation:
    """Measure the workers of `spec` for `seconds` in each way; `ask` gives the request of a task and member."""
    composition = compose(load_experiment(spec), folder, debug=False)
    return asyncio.run(_saturate(composition, ask, batches, seconds))


async def _saturate(composition: Composition, ask: Callable[[int, int], Ask], count: int, seconds: float) -> Saturation:
    async with _workers(composition) as (engine, trainer):
        program = composition.stages[0]
        feed = Feed(engine, program, composition.slots, ask)
        batches = [Batch(step, await feed.groups(program.bound.groups)) for step in range(count)]
        drill = Drill(trainer, batches)
        await drill.steps(1)  # the first one allocates
        engine_alone = await feed.measure(seconds)
        trainer_alone = await drill.steps(count)
        generating = asyncio.create_task(feed.measure(seconds))
        trainer_beside = await drill.beside(generating)
        return Saturation(engine_alone, trainer_alone, await generating, trainer_beside)


@asynccontextmanager
async def _workers(composition: Composition) -> AsyncIterator[tuple[Worker, Worker]]:
    """An engine and a trainer, started and set up as for a run."""
    executor, engine_spec, trainer_spec = open_executor(composition), composition.engines[0], composition.trainers(0)[0]
    try:
        engine, trainer = await asyncio.gather(executor.start(engine_spec), executor.start(trainer_spec))
        model = await trainer.call("materialize", composition.model)
        await engine.call("setup", composition.engine_plan(engine_spec, model, WeightVersion()))
        await trainer.call("setup", composition.trainer_plans(model)[0])
        await trainer.call("begin_stage", composition.stages[0].order)
        yield engine, trainer
    finally:
        await executor.close()


class Feed:
    """Requests of one task after another, `SPARE` for each row of the engine."""

    def __init__(self, engine: Worker, program: StageProgram, rows: int, ask: Callable[[int, int], Ask]) -> None:
        self._engine, self._program, self._rows, self._ask = engine, program, rows, ask
        self._next = ((index, member) for index in itertools.count() for member in range(program.group_size))

    async def groups(self, count: int) -> tuple[TrajectoryGroup, ...]:
        """The next `count` groups of answers. Rewards differ within a group, so that all of it is trained on."""
        size = self._program.group_size
        places, gate = list(itertools.islice(self._next, count * size)), asyncio.Semaphore(SPARE * self._rows)
        answers = await asyncio.gather(*(self._trajectory(*place, gate) for place in places))
        return tuple(
            TrajectoryGroup(first, TaskRef("latency", "train", places[first][0]), tuple(answers[first : first + size]))
            for first in range(0, len(answers), size)
        )

    async def measure(self, seconds: float) -> Rate:
        """The engine's rate while it is full: from when as many answers have ended as it has requests."""
        ended, count = asyncio.Semaphore(0), SPARE * self._rows
        asking = [asyncio.create_task(self._keep_asking(ended)) for _ in range(count)]
        for _ in range(count):
            await ended.acquire()
        before, began = await self._stats(), time.perf_counter()
        await asyncio.sleep(seconds)
        after, passed = await self._stats(), time.perf_counter() - began
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        return Rate(after.generated_tokens - before.generated_tokens, passed)

    async def _keep_asking(self, ended: asyncio.Semaphore) -> None:
        while True:
            await self._answer(*next(self._next))
            ended.release()

    async def _trajectory(self, index: int, member: int, gate: asyncio.Semaphore) -> Trajectory:
        async with gate:
            prompt, answer = await self._answer(index, member)
        size, drawn = len(prompt), len(answer.tokens)
        columns = {
            "tokens": np.concatenate([prompt, answer.tokens]),
            "mask": np.repeat(np.array([0, 1], np.uint8), [size, drawn]),
            "logprobs": np.concatenate([np.zeros(size, np.float32), answer.logprobs]),
            "versions": np.concatenate([np.full(size, NO_VERSION), answer.versions]),
        }
        return Trajectory(member, columns, size, float(member), answer.finish)

    async def _answer(self, index: int, member: int) -> tuple[np.ndarray, Completion]:
        prompt, length = self._ask(index, member)
        sampling = evolve(self._program.sampling, max_new_tokens=length, ignore_eos=True)
        request = GenerateRequest(f"{index}/{member}", prompt, sampling, seed=index)
        completions = [completion async for completion in self._engine.stream("generate", request)]
        return prompt, completions[0]

    async def _stats(self) -> EngineStats:
        stats: EngineStats = await self._engine.call("stats")
        return stats


class Drill:
    """The same batches over and over, one step right after the other."""

    def __init__(self, trainer: Worker, batches: Sequence[Batch]) -> None:
        self._trainer, self._batches = trainer, itertools.cycle(batches)
        self._step = 0

    async def steps(self, count: int) -> Rate:
        """Train `count` steps; the seconds are the trainer's own."""
        return await self._until(lambda done: done == count)

    async def beside(self, other: asyncio.Task[Rate]) -> Rate:
        """Train for as long as `other` takes."""
        return await self._until(lambda done: other.done())

    async def _until(self, over: Callable[[int], bool]) -> Rate:
        tokens, seconds, done = 0, 0.0, 0
        while not over(done):
            batch = evolve(next(self._batches), step=self._step)
            result: TrainResult = await self._trainer.call("train", batch)
            tokens += sum(trajectory.trained_units for trajectory in batch.trajectories)
            seconds, done, self._step = seconds + result.seconds, done + 1, self._step + 1
        return Rate(tokens, seconds)
