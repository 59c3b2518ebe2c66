"""What there must be before a run can start: its directory, its shared parts and its executor."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pluggy

from areal_core.contexts import ExecutorContext, RunInfo, TrackerContext
from areal_core.errors import CheckpointError
from areal_core.local import is_local
from areal_core.pipeline import checkpoint
from areal_core.pipeline.background import Background, Stop
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import Composition
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.metrics import Dropped
from areal_core.pipeline.observers import Observers
from areal_core.pipeline.run import Run, Watcher
from areal_core.pipeline.rundir import RunDirectory
from areal_core.pipeline.trace import Trace
from areal_core.protocols import Executor, Tracker
from areal_core.spec.experiment import Experiment, Selected
from areal_core.spec.secrets import shown
from areal_core.workers.build import build, make_ref
from areal_core.workers.service import ROLES


def open_run(
    composition: Composition,
    state: PipelineState,
    watcher: Watcher,
    hooks: pluggy.PluginManager | None,
    provenance: Mapping[str, Any],
    damaged: Iterable[CheckpointError] = (),
) -> Run:
    """The run directory and all that the run's parts share; for a run that resumes in `state`.

    `damaged` are the checkpoints that were passed over for it.
    """
    experiment, loop = composition.experiment, asyncio.get_running_loop()
    directory = RunDirectory(composition.folder, state.step)
    spec = shown(experiment.resolved, experiment.origins)
    directory.describe(spec, {**provenance, "model": state.model})
    trace = Trace(loop.time, composition.folder / "trace.json", state.elapsed)
    events = Events(lambda event: directory.event(event, trace.elapsed), watcher.happened)
    info = RunInfo(experiment.name, composition.folder, experiment.seed, spec)

    def report(observer: str, problem: str) -> None:
        loop.call_soon_threadsafe(_add_observer_event, events, observer, problem)

    trackers = [(f"tracker/{t.name}", _tracker(t, composition, info)) for t in experiment.trackers]
    condition = Condition()
    stop = Stop(condition)
    run = Run(
        info=info,
        directory=directory,
        condition=condition,
        stop=stop,
        background=Background(stop),
        events=events,
        observers=Observers(info, hooks, trackers, report, inline=composition.debug),
        trace=trace,
        watcher=watcher,
        tally=state.tally.copy(),
    )
    events.step = state.step
    _stand(run, state, damaged)
    return run


async def rewind(run: Run, state: PipelineState, damaged: Iterable[CheckpointError], cause: str) -> Dropped:
    """Let the run stand at `state`, whatever it has written and counted beyond, which is dropped; events are kept.

    `damaged` are the checkpoints that were passed over.
    """
    await asyncio.to_thread(run.directory.rewind, state.step)
    return _stand(run, state, damaged, cause)


def _stand(run: Run, state: PipelineState, damaged: Iterable[CheckpointError], cause: str = "") -> Dropped:
    checkpoint.abandon(run.directory.checkpoints, state.step, damaged)
    dropped = run.tally.rewind(state.tally, cause, told=run.events.step != state.step)
    run.events.step = state.step
    return dropped


def _add_observer_event(events: Events, observer: str, problem: str) -> None:
    events.add("observer-failed", f"{observer}: {problem}", observer=observer)


def _tracker(selected: Selected, composition: Composition, info: RunInfo) -> Tracker:
    tracker: Tracker = build(make_ref(selected, composition.experiment.files), TrackerContext(info))
    return tracker


def open_executor(composition: Composition, events: Events | None = None, trains: bool = True) -> Executor:
    """The experiment's executor, with nothing started; what its starts wait for goes to `events`.

    With `trains` False no trainer will be asked for.
    """
    experiment = composition.experiment
    context = ExecutorContext(
        run_id=composition.folder.name,
        logs=composition.folder / "logs",
        files=experiment.files,
        heartbeat=experiment.stages[0].spec.supervision.heartbeat_timeout,
        modules=tuple(dict.fromkeys(_modules(experiment))),
        workers=(*(composition.trainers() if trains else ()), *composition.engines, *composition.rollouts),
        report=lambda text: None if events is None else events.add("start-waits", text),
    )
    executor: Executor = build(make_ref(experiment.executor, experiment.files), context)
    return executor


def _modules(experiment: Experiment) -> Iterator[str]:
    """Where the code of the workers' components is, but for what the spec brings along in files of its own."""
    yield from (service.partition(":")[0] for service in ROLES.values())
    for stage in experiment.stages:
        spec = stage.spec
        parts = [stage.model, stage.transport, stage.objective, stage.optimizer]
        parts += [stage.trainer] if spec.training.python is None else []
        parts += [stage.engine] if spec.inference.python is None else []
        for entry in stage.environments:
            parts += [entry.environment, *([entry.reward] if entry.reward else [])]
        modules = (part.component.factory.partition(":")[0] for part in parts)
        yield from (module for module in modules if not is_local(module))
