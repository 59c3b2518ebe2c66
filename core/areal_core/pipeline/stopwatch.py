"""How long the parts of a step took, and how busy the devices were: `timings.jsonl`, and what people watch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping

from attrs import frozen

from areal_core.data import EngineStats
from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.run import Run, StepReport
from areal_core.pipeline.weights import Weights
from areal_core.protocols import Worker

SPAN = 10
"""Steps over which rates are taken."""


@frozen
class _Mark:
    """Counters at one step: units drawn and trained on, and the device-seconds that each took."""

    now: float
    generated: int
    trained: int
    generating: float
    training: float


class Stopwatch:
    """Writes a line a step, beside the training loop: asking the engines how busy they were may take a while."""

    def __init__(self, run: Run, crew: Crew, weights: Weights, steps: int) -> None:
        self._run, self._crew, self._weights, self._steps = run, crew, weights, steps
        self._marks: deque[_Mark] = deque(maxlen=SPAN + 1)
        self._counted = EngineStats()
        self._writing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Training begins, or goes on after something else."""
        self._writing = None
        totals = self._run.tally.totals
        self._marks.clear()
        self._marks.append(_Mark(self._run.trace.now(), 0, totals.trained, 0.0, 0.0))

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
        passage = self._weights.take_passage()
        return {"publish": passage.publish, "prepare": passage.prepare, "held": passage.held}

    def _rates(self, train: float, stats: EngineStats) -> dict[str, float]:
        """The step's own time, and over the last `SPAN` steps: units a second, and how busy the devices were."""
        last, first = self._marks[-1], self._marks[0]
        here = self._mark(last, train, stats)
        figures = {"wall": here.now - last.now, "elapsed": self._run.trace.elapsed}
        wall = here.now - first.now
        if wall <= 0:
            return figures
        engines, ranks = max(1, len(self._crew.engines.seats)), len(self._crew.trainer.ranks)
        generating, training = here.generating - first.generating, here.training - first.training
        return figures | {
            "generated_per_second": (here.generated - first.generated) / wall,
            "trained_per_second": (here.trained - first.trained) / wall,
            "engines_busy": generating / (engines * wall),
            "trainer_busy": training / wall,
            "utilization": (generating + training * ranks) / ((engines + ranks) * wall),
        }

    def _mark(self, last: _Mark, train: float, stats: EngineStats) -> _Mark:
        """Where the counters stand now; those of an engine that was restarted begin at 0 again."""
        here = _Mark(
            now=self._run.trace.now(),
            generated=last.generated + max(0, stats.generated_tokens - self._counted.generated_tokens),
            trained=self._run.tally.totals.trained,
            generating=last.generating + max(0.0, stats.busy_seconds - self._counted.busy_seconds),
            training=last.training + train,
        )
        self._counted = stats
        self._marks.append(here)
        return here

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
