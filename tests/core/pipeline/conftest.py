"""Runs made of mocks on a virtual clock."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from areal_core.contexts import RunSummary
from areal_core.manager import Manager
from areal_core.pipeline.compose import compose
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.events import Event
from areal_core.pipeline.run import EvaluationReport, StepReport
from areal_core.pipeline.staleness import Ledger
from areal_core.spec import load_experiment
from areal_plugins.testing.clock import run_virtually
from areal_plugins.testing.pipeline import manager

SPEC = """
name: mocked
seed: 3
model: mock
platform: mock
executor: {type: mock, mock: {latency: {train: 1.0, publish: 0.1, prepare: 0.1}}}
inference: {type: mock, max_concurrent: 16, mock: {token_seconds: 0.02, longest: 100}, sampling: {max_new_tokens: 1000}}
training: {backend: mock, batch_size: 16, max_steps: 20, optimizer: mock}
weights: {type: mock}
objective: {type: grpo, group_size: 4}
environments: [{name: numbers, type: mock, reward: mock}]
evaluation: {samples: 8, before: false, after: false}
trackers: []
"""


class Log:
    """A watcher that keeps what it is told, and calls `on_step` at every step."""

    def __init__(self, on_step: Callable[[int], None] = lambda step: None) -> None:
        self.phases: list[str] = []
        self.steps: list[StepReport] = []
        self.evaluations: list[EvaluationReport] = []
        self.events: list[Event] = []
        self._on_step = on_step

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def stepped(self, report: StepReport) -> None:
        self.steps.append(report)
        self._on_step(report.step)

    def evaluated(self, report: EvaluationReport) -> None:
        self.evaluations.append(report)

    def happened(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


class Scene:
    """Makes and runs controllers of the spec above, with overrides; `log` is the last run's."""

    def __init__(self, folder: Path, plugins: Manager) -> None:
        self.folder = folder
        self.log = Log()
        self.controller: Controller | None = None
        self._manager = plugins

    def run(
        self,
        *overrides: str,
        spec: str = SPEC,
        name: str = "run",
        debug: bool = False,
        meddle: Callable[[Controller], Coroutine[Any, Any, None]] | None = None,
        **options: Any,
    ) -> RunSummary:
        """Run to the end; `meddle` runs beside it."""
        source = self.folder / "spec.yaml"
        source.write_text(spec)
        experiment = load_experiment(source, overrides, self._manager)
        self.log = options.pop("log", Log())

        async def main() -> RunSummary:
            composition = compose(experiment, self.folder / name, debug)
            self.controller = Controller(composition, self.log, **options)
            beside = asyncio.ensure_future(meddle(self.controller)) if meddle else None
            try:
                return await self.controller.run()
            finally:
                if beside:
                    beside.cancel()

        return run_virtually(main())

    def lines(self, file: str, name: str = "run") -> list[dict[str, Any]]:
        """The objects of a file of lines."""
        return [json.loads(line) for line in (self.folder / name / file).read_bytes().splitlines()]

    def trace(self, name: str = "run") -> list[dict[str, Any]]:
        """The events of its timeline."""
        told = json.loads((self.folder / name / "trace.json").read_bytes())
        return list(told["traceEvents"] if isinstance(told, dict) else told)

    def checkpoint(self, step: int, name: str = "run") -> Path:
        return self.folder / name / "checkpoints" / f"step-{step}"

    def metrics(self, name: str = "run") -> bytes:
        return (self.folder / name / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="session", autouse=True)
def _hasty() -> Iterator[None]:
    """Nothing here has to outlive a loss of power, and waiting for the disk is most of what a save costs."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(scope="session")
def plugins() -> Manager:
    return manager()


@pytest.fixture
def scene(tmp_path: Path, plugins: Manager) -> Scene:
    return Scene(tmp_path, plugins)


@pytest.fixture
def virtually() -> Callable[..., Any]:
    """Runs a coroutine on a virtual clock."""
    return run_virtually


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every change of a ledger is followed by a look at the bound; the most that ever was ahead, in trajectories."""
    seen: list[int] = []

    def check(ledger: Ledger) -> None:
        bound = ledger.bound
        trained = (ledger.step - bound.first_step) * bound.batch_size
        ahead = trained + (ledger.running + ledger.finished) * bound.group_size
        assert ahead <= (ledger.committed - bound.first_step + bound.max_staleness + 1) * bound.batch_size
        seen.append(ahead - trained)

    for name in ("admit", "resume", "finish", "drop", "commit", "take", "expire"):
        monkeypatch.setattr(Ledger, name, _followed(getattr(Ledger, name), check))
    return seen


def _followed(method: Callable[..., Any], check: Callable[[Ledger], None]) -> Callable[..., Any]:
    def followed(ledger: Ledger, *args: Any, **kwargs: Any) -> Any:
        result = method(ledger, *args, **kwargs)
        check(ledger)
        return result

    return followed
