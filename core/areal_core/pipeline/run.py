"""What every part of the pipeline shares during one run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from attrs import field, frozen

from areal_core.contexts import RunInfo
from areal_core.pipeline.background import Background, Stop
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Event, Events
from areal_core.pipeline.metrics import Tally
from areal_core.pipeline.observers import Observers
from areal_core.pipeline.rundir import RunDirectory
from areal_core.pipeline.trace import Trace


@frozen
class StepReport:
    """A step as whoever watches sees it: its figures, how long its parts took, and how far the run is."""

    step: int
    steps: int
    stage: str
    metrics: Mapping[str, float]
    timings: Mapping[str, float]


@frozen
class Scores:
    """An environment's held-out tasks: mean reward and accuracy, and what became of the tasks.

    `accuracy`, whose standard error it is, is the mean of the reward's part `correct` where it has one,
    else of the reward. `parts` are the means of all its parts.
    """

    reward: float
    accuracy: float
    stderr: float
    tasks: int
    failed: int
    length: float
    truncated: float
    parts: Mapping[str, float] = field(factory=dict)


@frozen
class EvaluationReport:
    """One evaluation after `step` steps, by environment; `versions` are the oldest and newest that answered."""

    step: int
    environments: Mapping[str, Scores]
    versions: tuple[str, str]


class Watcher(Protocol):
    """Shows a run to people while it goes on. Called on the loop: must be quick."""

    def phase(self, text: str) -> None:
        """What the run does now, outside of steps."""
        ...

    def stepped(self, report: StepReport) -> None:
        """A step is done."""
        ...

    def evaluated(self, report: EvaluationReport) -> None:
        """An evaluation is done."""
        ...

    def happened(self, event: Event) -> None:
        """Something else happened."""
        ...


@frozen(eq=False)
class Run:
    """The run's shared parts."""

    info: RunInfo
    directory: RunDirectory
    condition: Condition
    stop: Stop
    background: Background
    events: Events
    observers: Observers
    trace: Trace
    watcher: Watcher
    tally: Tally
