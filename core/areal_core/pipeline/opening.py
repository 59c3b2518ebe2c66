"""What there must be before a run can start: its directory, its shared parts and its executor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pluggy

from areal_core.contexts import ExecutorContext, RunInfo, TrackerContext
from areal_core.pipeline import checkpoint
from areal_core.pipeline.background import Background, Stop
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import Composition
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.observers import Observers
from areal_core.pipeline.run import Run, Watcher
from areal_core.pipeline.rundir import RunDirectory
from areal_core.pipeline.trace import Trace
from areal_core.protocols import Executor, Tracker
from areal_core.spec.experiment import Selected
from areal_core.spec.secrets import shown
from areal_core.workers.build import build, make_ref


def begin_again(folder: Path) -> str | None:
    """Forget how far a run in `folder` came; the model that it began with, "" for the spec's. None: there was none."""
    path = folder / "provenance.json"
    if not path.exists():
        return None
    (folder / "evaluations.jsonl").unlink(missing_ok=True)  # the rest is after step 0, and goes as in every resume
    return str(json.loads(path.read_text()).get("model", ""))


def open_run(
    composition: Composition,
    state: PipelineState,
    watcher: Watcher,
    hooks: pluggy.PluginManager | None,
    provenance: Mapping[str, Any],
) -> Run:
    """The run directory and all that the run's parts share; for a run that resumes in `state`."""
    experiment, loop = composition.experiment, asyncio.get_running_loop()
    directory = RunDirectory(composition.folder, state.step)
    checkpoint.abandon(directory.checkpoints, state.step)
    spec = shown(experiment.resolved, experiment.origins)
    directory.describe(spec, {**provenance, "model": state.model})
    trace = Trace(loop.time, composition.folder / "trace.json", state.elapsed)
    events = Events(lambda event: directory.event(event, trace.elapsed), watcher.happened)
    events.step = state.step
    info = RunInfo(experiment.name, composition.folder, experiment.seed, spec)

    def report(observer: str, problem: str) -> None:
        loop.call_soon_threadsafe(_add_observer_event, events, observer, problem)

    trackers = [(f"tracker/{t.name}", _tracker(t, composition, info)) for t in experiment.trackers]
    condition = Condition()
    stop = Stop(condition)
    return Run(
        info=info,
        directory=directory,
        condition=condition,
        stop=stop,
        background=Background(stop),
        events=events,
        observers=Observers(info, hooks, trackers, report, inline=composition.debug),
        trace=trace,
        watcher=watcher,
        tally=state.tally,
    )


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
        workers=(*(composition.trainers(0) if trains else ()), *composition.engines, *composition.rollouts),
        report=lambda text: None if events is None else events.add("start-waits", text),
    )
    executor: Executor = build(make_ref(experiment.executor, experiment.files), context)
    return executor
