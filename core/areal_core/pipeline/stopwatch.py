"""How long the parts of a step took, and how busy the devices were: `timings.jsonl`, and what people watch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from attrs import frozen

from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.run import Run, StepReport
from areal_core.pipeline.weights import Weights
from areal_core.protocols import EngineStats, Worker


@frozen
class _Mark:
    """Where the counters stood at the last step."""

    now: float
    trained: int = 0
    generated: int = 0
    busy: float = 0.0


class Stopwatch:
    """Writes a line a step, beside the training loop: asking the engines how busy they were may take a while."""

    def __init__(self, run: Run, crew: Crew, weights: Weights, steps: int) -> None:
        self._run, self._crew, self._weights, self._steps = run, crew, weights, steps
        self._mark = _Mark(run.trace.now(), run.tally.totals.trained)
        self._writing: asyncio.Task[None] | None = None

    def stepped(self, stage: str, step: int, metrics: Mapping[str, float], waited: float, trained: float) -> None:
        """A step is done, after waiting `waited` seconds for its batch and training for `trained`."""
        timings = {"wait": waited, "train": trained}
        report = StepReport(step, self._steps, stage, metrics, timings)
        self._writing = self._run.background.spawn(self._write(report, self._writing))

    async def idle(self) -> None:
        """Return once every line is written."""
        if self._writing is not None:
            await self._writing

    async def _write(self, report: StepReport, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        timings = dict(report.timings) | self._transfer() | self._rates(report.timings["train"], await self._stats())
        self._run.directory.timings.add({"step": report.step, "stage": report.stage, **timings})
        self._run.trace.flush()
        self._run.watcher.stepped(StepReport(report.step, report.steps, report.stage, report.metrics, timings))

    def _transfer(self) -> dict[str, float]:
        passage = self._weights.passage
        return {"publish": passage.publish, "prepare": passage.prepare, "held": passage.held}

    def _rates(self, train: float, stats: EngineStats) -> dict[str, float]:
        """Since the last step: tokens a second, and the share of the time that devices computed."""
        now, trained = self._run.trace.now(), self._run.tally.totals.trained
        mark, self._mark = self._mark, _Mark(now, trained, stats.generated_tokens, stats.busy_seconds)
        wall = now - mark.now
        if wall <= 0:
            return {"wall": 0.0, "elapsed": self._run.trace.elapsed}
        engines, ranks = len(self._crew.engines.seats), len(self._crew.trainer.ranks)
        generating = max(0.0, stats.busy_seconds - mark.busy)
        return {
            "wall": wall,
            "elapsed": self._run.trace.elapsed,
            "generated_per_second": max(0, stats.generated_tokens - mark.generated) / wall,
            "trained_per_second": (trained - mark.trained) / wall,
            "engines_busy": generating / (engines * wall),
            "trainer_busy": train / wall,
            "utilization": (generating + train * ranks) / ((engines + ranks) * wall),
        }

    async def _stats(self) -> EngineStats:
        """Summed over the engines; one that was just lost counts for nothing."""
        found = [stats for seat in self._crew.engines.ready if (stats := await _ask(seat.worker)) is not None]
        return EngineStats(
            generated_tokens=sum(stats.generated_tokens for stats in found),
            busy_seconds=sum(stats.busy_seconds for stats in found),
        )


async def _ask(engine: Worker) -> EngineStats | None:
    try:
        stats: EngineStats = await engine.call("stats")
    except (WorkerLost, RemoteError):
        return None
    return stats
