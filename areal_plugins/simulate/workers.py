"""What stands in for the workers of a run: each answers the controller's calls after the time that they would take."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
from attrs import define, field, frozen

from areal_core.contexts import WorkerSpec
from areal_core.data import (
    NO_VERSION,
    Batch,
    EngineStats,
    Trajectory,
    TrajectoryGroup,
    WeightOffer,
    WeightVersion,
)
from areal_core.errors import WorkerLost
from areal_core.workers.plans import EnginePlan, GroupOrder, GroupResult, TrainResult
from areal_plugins.simulate.costs import EngineCosts, TrainerCosts, UpdateCosts
from areal_plugins.simulate.engine import Sequence, SimulatedEngine
from areal_plugins.simulate.lengths import Lengths, tokens

T = TypeVar("T")
Dial = Callable[[str], "EngineActor"]


@frozen
class Work:
    """What there is to do: lengths of prompts and answers in tokens, seconds of rewards, tokens a unit stands for.

    The pipeline's records hold a unit for every `grain` tokens, so that a cluster's batches fit in this machine.
    """

    answers: Lengths
    prompts: Lengths
    rewards: Lengths
    grain: int
    longest: int


class EngineActor:
    """An engine worker."""

    def __init__(self, costs: EngineCosts, update: UpdateCosts, grain: int, flushes: bool = False) -> None:
        self._costs, self._update, self._grain, self._flushes = costs, update, grain, flushes
        self._keeps = True
        self.engine: SimulatedEngine

    async def setup(self, plan: EnginePlan) -> None:
        self.engine = SimulatedEngine(self._costs, plan.max_concurrent, asyncio.get_running_loop(), self._flushes)
        self.engine.version = plan.version.code
        self._keeps = plan.interruptible

    async def prepare(self, offer: WeightOffer) -> None:
        await asyncio.sleep(self._update.prepare())

    async def commit(self, version: WeightVersion) -> None:
        await self.engine.pause(self._keeps)
        await asyncio.sleep(self._costs.swap())
        self.engine.load(version.code)
        self.engine.resume()

    async def stats(self) -> EngineStats:
        """In the pipeline's units, as its records are."""
        engine = self.engine
        drawn, read = engine.tokens // self._grain, engine.prefilled // self._grain
        return EngineStats(drawn, read, engine.busy, engine.running, engine.waiting)


class TrainerActor:
    """One rank; all of a group take the same time for a batch, which the first works out."""

    def __init__(self, costs: TrainerCosts, update: UpdateCosts, work: Work, figures: dict[int, TrainResult]) -> None:
        self._costs, self._update, self._work, self._figures = costs, update, work, figures

    async def materialize(self, plan: Any) -> str:
        return str(plan.work)

    async def train(self, batch: Batch) -> TrainResult:
        if batch.step not in self._figures:
            self._figures.clear()
            self._figures[batch.step] = self._result(batch)
        result = self._figures[batch.step]
        await asyncio.sleep(result.seconds)
        return result

    async def publish(self, version: WeightVersion) -> WeightOffer:
        await asyncio.sleep(self._update.publish())
        return WeightOffer(version, "mock", "tensors")

    async def save_model(self, directory: str) -> None:
        await asyncio.to_thread(_write, Path(directory) / "config.json", '{"model_type": "simulated"}')

    async def save_state(self, directory: str) -> None:
        await asyncio.to_thread(_write, Path(directory) / "state.json", "{}")

    async def written(self) -> None:
        """All of it is."""

    def _result(self, batch: Batch) -> TrainResult:
        """Its time, and how old the tokens are: the share of them at each lag."""
        grain = self._work.grain
        prompt = tokens(self._work.prompts.at(0.5))
        lengths = [len(trajectory) * grain + prompt for trajectory in batch.trajectories]
        figures = {f"lag/{lag}": share for lag, share in _lags(batch).items()}
        figures |= {"simulated/tokens": float(sum(lengths)), "simulated/trajectories": float(len(lengths))}
        return TrainResult(figures, self._costs.train(lengths))


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _lags(batch: Batch) -> dict[int, float]:
    codes = np.concatenate([trajectory.columns["versions"] for trajectory in batch.trajectories])
    drawn, counts = np.unique(codes[codes != NO_VERSION], return_counts=True)
    total = max(1, int(counts.sum()))
    shares: dict[int, float] = {}
    for code, count in zip(drawn, counts, strict=True):
        lag = batch.step - WeightVersion.from_code(int(code)).step
        shares[lag] = shares.get(lag, 0.0) + float(count) / total
    return shares


class RolloutActor:
    """A rollout worker: the answers of a group end one by one, and each is judged for a while."""

    def __init__(self, work: Work, dial: Dial) -> None:
        self._work, self._dial = work, dial
        self._columns = _Columns(-(-work.longest // work.grain))

    async def size(self, environment: str, split: str) -> int | None:
        return None if split == "train" else 0

    async def run_group(self, order: GroupOrder) -> GroupResult:
        engine = self._dial(order.engine).engine
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        group, work = _Group(len(order.members), done), self._work
        point = Random(order.seed).random  # noqa: S311  # lengths, not secrets
        prompt = tokens(work.prompts.at(point()))
        for drawn in work.answers.group(len(order.members), point):
            length = tokens(drawn, work.longest)
            judging = group.judge(loop.time, work.rewards.at(point()))
            sequence = Sequence(prompt, length, judging, shared=bool(group.sequences))
            group.sequences.append(sequence)
            engine.submit(sequence)
        try:
            await done
        except asyncio.CancelledError:
            engine.drop(group.sequences)
            raise
        if group.ready > loop.time():
            await asyncio.sleep(group.ready - loop.time())
        return GroupResult(self._scored(order, group))

    def _scored(self, order: GroupOrder, group: _Group) -> TrajectoryGroup:
        members = zip(order.members, group.sequences, strict=True)
        longest = min(self._work.longest, order.sampling.max_new_tokens)
        return TrajectoryGroup(
            order.sequence,
            order.task,
            tuple(
                Trajectory(
                    member=member,
                    columns=self._columns.of(sequence.stretches, self._work.grain),
                    prompt_length=0,
                    reward=float(sequence.length & 1),
                    finish="length" if sequence.length >= longest else "stop",
                )
                for member, sequence in members
            ),
        )


@define(eq=False)
class _Group:
    """The answers of a group; `left` have not ended, the last verdict is there at `ready`."""

    left: int
    done: asyncio.Future[None]
    sequences: list[Sequence] = field(factory=list)
    ready: float = 0.0

    def judge(self, clock: Callable[[], float], seconds: float) -> Callable[[Sequence], None]:
        """What to do when an answer ends whose judging takes `seconds`."""

        def ended(_: Sequence) -> None:
            self.ready = max(self.ready, clock() + seconds)
            self.left -= 1
            if not self.left and not self.done.done():
                self.done.set_result(None)

        return ended


class _Columns:
    """Columns without making any: what is the same in all trajectories is a view of one array."""

    def __init__(self, longest: int) -> None:
        longest += 64  # a unit more for every version that drew a part
        self._longest = longest
        self._versions: dict[int, np.ndarray] = {}
        self._tokens = np.zeros(longest, dtype=np.int32)
        self._mask = np.ones(longest, dtype=np.uint8)
        self._logprobs = np.zeros(longest, dtype=np.float32)

    def of(self, stretches: list[tuple[int, int]], grain: int) -> dict[str, np.ndarray]:
        counts, codes = _units(stretches, grain)
        size = sum(counts)
        alone = len(codes) == 1
        versions = self._all(codes[0])[:size] if alone else np.repeat(np.array(codes, dtype=np.int64), counts)
        return {
            "tokens": self._tokens[:size],
            "mask": self._mask[:size],
            "logprobs": self._logprobs[:size],
            "versions": versions,
        }

    def _all(self, code: int) -> np.ndarray:
        """A column of one version."""
        if code not in self._versions:
            self._versions[code] = np.full(self._longest, code, dtype=np.int64)
        return self._versions[code]


def _units(stretches: list[tuple[int, int]], grain: int) -> tuple[list[int], list[int]]:
    """Units a version; the oldest has one at least, since the bound is about it."""
    ends, drawn = [], 0
    for count, _ in stretches:
        drawn += count
        ends.append(max(1, math.floor(drawn / grain + 0.5)))
    counts = [end - before for end, before in zip(ends, [0, *ends], strict=False)]
    return counts, [code for _, code in stretches]


class Handle:
    """The controller's handle of an actor: calls it on this loop; what an actor does not know takes no time."""

    pid: int | None = None

    def __init__(self, spec: WorkerSpec, actor: Any) -> None:
        self.spec, self.name, self.address, self.actor = spec, spec.name, spec.name, actor
        self._gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        if self._gone.done():
            raise WorkerLost(self.name, self._gone.result())
        work: Callable[..., Coroutine[Any, Any, Any]] | None = getattr(self.actor, method, None)
        return None if work is None else await work(*args)

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        raise NotImplementedError(f"{self.name} does not stream {method}")

    async def lost(self) -> str:
        return await asyncio.shield(self._gone)

    async def stop(self, grace: float) -> None:
        self.kill()

    def kill(self) -> None:
        if not self._gone.done():
            self._gone.set_result("ended")

    async def close(self) -> None:
        """Nothing to free."""
