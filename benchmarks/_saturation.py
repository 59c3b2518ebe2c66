"""How fast the two pools of an experiment are when neither ever waits: its own worker processes, kept full.

The engine always has more requests than rows, of the task's own lengths; the trainer is given one batch
after another, made of the answers. Both are measured alone, and both at once, because pools on one
machine share its memory bus and its caches: what a pool can do beside the other is all that a run can get.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import numpy as np
from attrs import evolve, frozen

from areal_core.pipeline.compose import Composition, StageProgram, compose
from areal_core.pipeline.opening import open_executor
from areal_core.spec import load_experiment
from areal_core.workers.plans import TrainResult
from areal_core.workers.seeds import derive
from areal_plugins.data import (
    NO_VERSION,
    Batch,
    Completion,
    EngineStats,
    GenerateRequest,
    TaskRef,
    Trajectory,
    TrajectoryGroup,
    WeightVersion,
)
from areal_plugins.protocols import Worker

SPARE = 2
"""Requests that the engine has for each of its rows."""

REFINEMENTS = 3
"""Numbers of rows that are tried between the fewest and the most."""

T = TypeVar("T")

Ask = Callable[[int, int], tuple[np.ndarray, int]]
"""The request of a task's member: the prompt's token ids, and how many tokens the answer has."""


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


def saturate(spec: Path, folder: Path, ask: Ask, batches: int, seconds: float) -> Saturation:
    """Measure the workers of `spec` for `seconds` in each way; the trainer on `batches` different batches."""
    return asyncio.run(_saturate(compose(load_experiment(spec), folder, debug=False), ask, batches, seconds))


def balance(spec: Path, folder: Path, ask: Ask, few: int, seconds: float) -> int:
    """The rows, from `few` to all that `spec` has, with which the engine takes as long for a token as the trainer.

    Both at work, `seconds` for each number of rows that is tried.
    """
    return asyncio.run(_balance(compose(load_experiment(spec), folder, debug=False), ask, few, seconds))


async def _saturate(composition: Composition, ask: Ask, count: int, seconds: float) -> Saturation:
    async with _workers(composition) as (engine, trainer):
        feed, requests = Feed(engine, composition.stages[0], ask), SPARE * composition.slots
        drill = Drill(trainer, [await feed.batch(composition.slots) for _ in range(count)])
        await drill.steps(1)  # the first one allocates
        engine_alone, _ = await feed.measure(requests, asyncio.sleep(seconds))
        trainer_alone = await drill.steps(2)
        return Saturation(engine_alone, trainer_alone, *await feed.measure(requests, drill.lasting(seconds)))


async def _balance(composition: Composition, ask: Ask, few: int, seconds: float) -> int:
    async with _workers(composition) as (engine, trainer):
        feed, many = Feed(engine, composition.stages[0], ask), composition.slots
        drill = Drill(trainer, [await feed.batch(many)])
        await drill.steps(1)

        async def gap(rows: int) -> tuple[int, float]:
            generated, trained = await feed.measure(rows, drill.lasting(seconds))
            return rows, generated.cost - trained.cost

        narrow, wide = await gap(few), await gap(many)
        for _ in range(REFINEMENTS):
            if (rows := crossing(narrow, wide)) in (narrow[0], wide[0]):
                break
            here = await gap(rows)
            narrow, wide = (here, wide) if here[1] > 0 else (narrow, here)
        return crossing(narrow, wide)


def crossing(narrow: tuple[int, float], wide: tuple[int, float]) -> int:
    """The rows whose gap (the engine's seconds a token less the trainer's) is 0, or the end that is closer to it.

    A decoding step costs something a row and something by itself, so that a gap is linear in 1 / rows.
    """
    (few, slow), (many, fast) = narrow, wide
    if slow <= 0 or fast >= 0:
        return few if slow <= 0 else many
    share = slow / (slow - fast)
    return round(1 / (1 / few + share * (1 / many - 1 / few)))


@asynccontextmanager
async def _workers(composition: Composition) -> AsyncIterator[tuple[Worker, Worker]]:
    """An engine and a trainer, started and set up as for a run."""
    executor, engine_spec, trainer_spec = open_executor(composition), composition.engines[0], composition.trainers()[0]
    try:
        engine, trainer = await asyncio.gather(executor.start(engine_spec), executor.start(trainer_spec))
        model = await trainer.call("materialize", composition.model)
        await engine.call("setup", composition.engine_plan(engine_spec, model, WeightVersion()))
        await trainer.call("setup", composition.trainer_plan(composition.trainers()[0], model))
        await trainer.call("begin_stage", composition.stages[0].order)
        yield engine, trainer
    finally:
        await executor.close()


class Feed:
    """The requests of one task after another."""

    def __init__(self, engine: Worker, program: StageProgram, ask: Ask) -> None:
        self._engine, self._program, self._ask = engine, program, ask
        self._next = ((index, member) for index in itertools.count() for member in range(program.group_size))

    async def batch(self, rows: int) -> Batch:
        """A batch of answers. Rewards differ within a group, so that all of it is trained on."""
        size, bound = self._program.group_size, self._program.bound
        places, gate = list(itertools.islice(self._next, bound.batch_size)), asyncio.Semaphore(SPARE * rows)
        answers = await asyncio.gather(*(self._trajectory(*place, gate) for place in places))
        firsts = range(0, len(answers), size)
        tasks = [TaskRef("latency", "train", places[first][0]) for first in firsts]
        groups = (
            TrajectoryGroup(first, task, tuple(answers[first : first + size]))
            for first, task in zip(firsts, tasks, strict=True)
        )
        return Batch(0, tuple(groups))

    async def measure(self, requests: int, work: Awaitable[T]) -> tuple[Rate, T]:
        """The engine's rate while `work` is done, and what that returns.

        It has so many requests at any time; `work` begins when as many have ended.
        """
        ended = asyncio.Semaphore(0)
        asking = [asyncio.create_task(self._keep_asking(ended)) for _ in range(requests)]
        for _ in range(requests):
            await ended.acquire()
        before, began = await self._stats(), time.perf_counter()
        done = await work
        after, passed = await self._stats(), time.perf_counter() - began
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        return Rate(after.generated_tokens - before.generated_tokens, passed), done

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
        seed = derive(index, member)  # one stream for all would make them begin alike, which is trained on once
        request = GenerateRequest(f"{index}/{member}", prompt, sampling, seed=seed)
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
        return await self._until(lambda done, _: done == count)

    async def lasting(self, seconds: float) -> Rate:
        """Train whole steps, for `seconds` at least."""
        return await self._until(lambda _, passed: passed >= seconds)

    async def _until(self, over: Callable[[int, float], bool]) -> Rate:
        tokens, seconds, done = 0, 0.0, 0
        while not over(done, seconds):
            batch = evolve(next(self._batches), step=self._step)
            result: TrainResult = await self._trainer.call("train", batch)
            tokens += sum(trajectory.trained_units for trajectory in batch.trajectories)
            seconds, done, self._step = seconds + result.seconds, done + 1, self._step + 1
        return Rate(tokens, seconds)
