"""Whole runs made of mocks, on a virtual clock: what a plugin under test is put into."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import define, field, frozen

from areal_core.contexts import RunSummary
from areal_core.data import TrajectoryGroup
from areal_core.errors import RunFailed
from areal_core.local import is_module
from areal_core.manager import Manager, State
from areal_core.pipeline.compose import compose
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.events import Event
from areal_core.pipeline.run import EvaluationReport, StepReport
from areal_core.spec import load_experiment
from areal_plugins import hookimpl
from areal_plugins.testing import mocks
from areal_plugins.testing.clock import run_virtually

SPEC = """
name: mocked
model: mock
platform: mock
executor: {type: mock, mock: {latency: {train: 1.0, publish: 0.1, prepare: 0.1}}}
inference: {type: mock, max_concurrent: 16, mock: {token_seconds: 0.02}, sampling: {max_new_tokens: 100}}
training: {backend: mock, batch_size: 8, max_steps: 3, optimizer: mock}
weights: mock
objective: {type: mock, group_size: 4}
environments: [{name: mock, type: mock, reward: {type: mock, target: 3}}]
evaluation: {samples: 4}
trackers: [mock]
"""
"""The run that all overrides go on top of: three steps of mocks, two groups of four each, scored before and after."""


@frozen(eq=False)
class MockedRun:
    """What became of a run. Seconds are those of the virtual clock.

    `outcome` is `done`, or `failed` with the cause in `error`. `metrics` and `evaluations` are the lines of
    the run directory `folder`, `events` what happened besides, `trajectories` the groups that entered the
    buffer, in order.
    """

    outcome: str
    folder: Path
    error: RunFailed | None
    summary: RunSummary | None
    metrics: tuple[Mapping[str, Any], ...]
    evaluations: tuple[Mapping[str, Any], ...]
    events: tuple[Event, ...]
    trajectories: tuple[TrajectoryGroup, ...]

    @property
    def rewards(self) -> list[float]:
        """Of every trajectory."""
        return [trajectory.reward for group in self.trajectories for trajectory in group]

    def ensure_done(self) -> MockedRun:
        """Itself; raises the `RunFailed` of a run that failed."""
        if self.error is not None:
            raise self.error
        return self


Spec = str | Mapping[str, Any]
"""A part of a spec: YAML text, or the same as data."""


def manager(plugins: Iterable[Any] = ()) -> Manager:
    """The installed plugins, the mocks, and `plugins`: modules or objects with hooks, or paths of files.

    Raises:
        ValueError: one of `plugins` is not usable; says why.

    """
    plugins = list(plugins)
    files = _named(plugins)
    objects = [plugin for plugin in plugins if not isinstance(plugin, str | Path)]
    found = Manager.discover(files).joined_by(mocks, *(plugin for plugin in objects if plugin is not mocks))
    for record in found.plugins[len(found.plugins) - len(plugins) - 1 :]:
        if record.state not in (State.READY, State.NOT_INSTALLED):
            raise ValueError(f"plugin {record.name} is not usable ({record.state.value}): {record.cause}")
    return found


def run_mocked(
    folder: Path,
    spec: Spec = "",
    plugins: Iterable[Any] = (),
    overrides: Sequence[str] = (),
    limit: float = 86400.0,
) -> MockedRun:
    """Run `SPEC` with `spec` on top of it, as a spec that `extends` it, and `overrides` as of `--set`.

    Everything is written below `folder`. `plugins` are those under test (see `manager`).

    Raises:
        SpecError: the spec is wrong, with all findings.
        TimeoutError: the run was not over after `limit` seconds of virtual time; says what hung.
        ValueError: a plugin is not usable.

    """
    plugins = list(plugins)
    source = _write(folder, spec, _named(plugins))
    experiment = load_experiment(source, overrides, found := manager(plugins))
    log, place = _Log(), _fresh(folder)

    async def main() -> RunSummary:
        hooks = found.observers()
        hooks.register(log, name="areal_run")
        return await Controller(compose(experiment, place, debug=True), log, hooks).run()

    summary = error = None
    try:
        summary = run_virtually(main(), limit)
    except RunFailed as failure:
        error = failure
    return MockedRun(
        outcome="failed" if summary is None else summary.outcome,
        folder=place,
        error=error,
        summary=summary,
        metrics=_lines(place / "metrics.jsonl"),
        evaluations=_lines(place / "evaluations.jsonl"),
        events=tuple(log.events),
        trajectories=tuple(log.groups),
    )


def _named(plugins: Iterable[Any]) -> list[str]:
    """Those that are files, absolute, or modules by name."""
    names = [str(plugin) for plugin in plugins if isinstance(plugin, str | Path)]
    return [name if is_module(name) else str(Path(name).absolute()) for name in names]


def _write(folder: Path, spec: Spec, files: list[str]) -> Path:
    """The spec as a file. JSON is YAML."""
    (folder / "mocked.yaml").write_text(SPEC)
    own = folder / "own.yaml"
    own.write_text(spec if isinstance(spec, str) else json.dumps(spec, default=str))
    source = folder / "spec.yaml"
    head: dict[str, Any] = {"extends": ["mocked.yaml", *(["own.yaml"] if spec else [])]}
    if files:
        head["plugins"] = files
    source.write_text(json.dumps(head))
    return source


def _fresh(folder: Path) -> Path:
    """The first of run-1, run-2, ... that is not there."""
    number = 1
    while (folder / f"run-{number}").exists():
        number += 1
    return folder / f"run-{number}"


def _lines(file: Path) -> tuple[Mapping[str, Any], ...]:
    return tuple(map(json.loads, file.read_bytes().splitlines())) if file.exists() else ()


@define(eq=False)
class _Log:
    """Keeps what it is told: as a watcher, and as an observer of groups."""

    events: list[Event] = field(factory=list)
    groups: list[TrajectoryGroup] = field(factory=list)

    def phase(self, text: str) -> None: ...

    def stepped(self, report: StepReport) -> None: ...

    def evaluated(self, report: EvaluationReport) -> None: ...

    def happened(self, event: Event) -> None:
        self.events.append(event)

    @hookimpl
    def areal_trajectories_collected(self, group: TrajectoryGroup) -> None:
        self.groups.append(group)
