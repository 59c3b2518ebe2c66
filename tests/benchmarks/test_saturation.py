"""The calibration of `async_gain`: rows that balance both pools, and rates of pools that are both at work."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from areal_core.data import Completion, EngineStats, GenerateRequest, Sampling

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _saturation import Feed, crossing


def gap(rows: int, by_itself: float, a_row: float, training: float) -> tuple[int, float]:
    return rows, by_itself / rows + a_row - training


def test_the_rows_that_balance_both_pools_are_found_between_the_fewest_and_the_most():
    assert crossing(gap(12, 10.0, 0.5, 1.0), gap(48, 10.0, 0.5, 1.0)) == 20


@pytest.mark.parametrize(("training", "rows"), [(5.0, 12), (0.1, 48)])
def test_where_no_rows_balance_them_it_is_the_closer_end(training, rows):
    assert crossing(gap(12, 10.0, 0.5, training), gap(48, 10.0, 0.5, training)) == rows


class Engine:
    """Draws each answer in one turn of the loop."""

    def __init__(self) -> None:
        self.drawn = self.busy = 0
        self.seeds: list[int] = []

    async def call(self, _method: str) -> EngineStats:
        return EngineStats(generated_tokens=self.drawn)

    async def stream(self, _method: str, request: GenerateRequest) -> AsyncIterator[Completion]:
        self.busy += 1
        self.seeds.append(request.seed)
        await asyncio.sleep(0)
        size = request.sampling.max_new_tokens
        self.drawn, self.busy = self.drawn + size, self.busy - 1
        yield Completion(0, *(np.zeros(size, kind) for kind in (np.int32, np.float32, np.int64)), "length")


def test_the_engine_is_kept_at_work_for_all_of_what_it_is_measured_beside():
    engine, seen = Engine(), []
    program = SimpleNamespace(group_size=2, sampling=Sampling())

    async def work() -> int:
        before = engine.drawn
        for _ in range(20):
            await asyncio.sleep(0)
            seen.append(engine.drawn)
        return seen[-1] - before

    feed = Feed(engine, program, lambda _index, _member: (np.zeros(4, np.int32), 3))
    rate, drawn = asyncio.run(feed.measure(5, work()))

    assert rate.tokens == drawn
    assert all(later > earlier for earlier, later in zip(seen[::2], seen[2::2], strict=False))


def test_no_two_answers_of_a_batch_come_from_one_random_stream():
    """Members that begin alike would be trained on at once up to where they differ, which no run's members do."""
    engine, bound = Engine(), SimpleNamespace(batch_size=8)
    program = SimpleNamespace(group_size=4, sampling=Sampling(), bound=bound)

    feed = Feed(engine, program, lambda _index, member: (np.zeros(4, np.int32), 3 + member))
    batch = asyncio.run(feed.batch(2))

    assert [len(group.trajectories) for group in batch.groups] == [4, 4]
    assert len(set(engine.seeds)) == 8
