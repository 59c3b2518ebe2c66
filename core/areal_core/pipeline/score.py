"""Scores a model directory on an experiment's held-out tasks: engines and rollout workers, no trainer."""

from __future__ import annotations

import asyncio
from pathlib import Path

from attrs import evolve

from areal_core.data import WeightVersion
from areal_core.errors import RunFailed
from areal_core.pipeline import dispatch, supervise
from areal_core.pipeline.background import Stopped
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import Composition
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.dispatch import Dispatcher
from areal_core.pipeline.evaluate import Evaluator
from areal_core.pipeline.opening import open_executor, open_run
from areal_core.pipeline.pool import Seat
from areal_core.pipeline.run import EvaluationReport, Watcher
from areal_core.pipeline.supervise import Supervisor


async def score_model(
    composition: Composition, model: Path, watcher: Watcher, samples: int | None = None
) -> EvaluationReport | None:
    """The scores of the last stage's environments, of `samples` tasks in all; None where there are no tasks.

    Raises:
        RunFailed: a worker or too many rollouts failed.

    """
    program = composition.stages[-1]
    if samples is not None:
        program = evolve(program, evaluation=evolve(program.evaluation, samples=samples))
    run = open_run(composition, PipelineState(), watcher, None, {})
    executor = open_executor(composition, run.events, trains=False)
    supervision = composition.experiment.stages[-1].spec.supervision
    supervisor = Supervisor(
        executor, run.background, run.condition, run.events, run.observers.failed,
        supervise.persistence(supervision), supervise.checkup(supervision, run.events, composition.debug),
    )  # fmt: skip
    crew = Crew(composition, executor, supervisor, run.condition, _serve)
    dispatcher = Dispatcher(
        crew.engines, crew.rollouts, lambda: False, run.condition, run.events,
        dispatch.patience(supervision, composition.debug),
    )  # fmt: skip

    async def work() -> EvaluationReport | None:
        await crew.start_engines(WeightVersion(), str(model))
        await crew.begin(program)
        evaluator = Evaluator(run, dispatcher, crew.slots)
        return await evaluator.run(program, await crew.sources(program.evaluation.split), 0)

    try:
        return await run.stop.race(work())
    except Stopped:
        raise RunFailed(str(run.stop.cause)) from run.stop.cause
    finally:
        await run.background.cancel()
        await executor.close()
        await asyncio.to_thread(run.observers.close, 1.0)
        run.trace.close()
        run.directory.close()


async def _serve(seat: Seat, _limit: float) -> None:
    """The model's own weights are what is asked for."""
    seat.ready = True
