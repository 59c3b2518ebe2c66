"""The invariants of groups: where each is, from its drawing to the step that trained on it, or its drop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from areal_core.data import NO_VERSION, Batch, TrajectoryGroup, WeightVersion
from areal_core.pipeline.compose import StageProgram
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.staleness import NEVER
from areal_core.pipeline.tasks import TaskSampler
from areal_core.pipeline.train import StageRun
from areal_plugins.testing.sim.history import Key

if TYPE_CHECKING:
    from areal_plugins.testing.sim.watch import Watch


KNOWN = 1000
"""Groups whose tasks are known for sure; none is under way for so long."""


class Groups:
    """Counts those of one life against the history, and draws each task with a sampler of its own."""

    def __init__(self, watch: Watch) -> None:
        self._watch, self._fail, self._history = watch, watch.fail, watch.history
        self._tasks: dict[int, Key] = {}
        self.begin()

    def begin(self) -> None:
        """A life begins."""
        self._stage: StageRun | None = None
        self._oracle: TaskSampler | None = None
        self._seen: tuple[object, ...] = ()
        self.forget()

    def forget(self) -> None:
        """What was trained on and not counted as such yet never was."""
        self._pending: dict[int, Batch] = {}

    def look(self, controller: Controller, stage: StageRun) -> None:
        """Count, if anything has changed."""
        seen = (
            stage, stage._step, stage._ledger.step, stage._sampler._drawn, len(stage._rollouts._rolling),
            len(stage._buffer), controller._weights.version,
        )  # fmt: skip
        if seen != self._seen:
            self._seen = seen
            self._count(controller, stage)

    def _count(self, controller: Controller, stage: StageRun) -> None:
        """No task is lost, or in two places; what runs ahead is within the bound."""
        if stage is not self._stage:
            self._stage = stage
            self._oracle = TaskSampler(controller._run.info.seed, stage._sampler._sources, drawn=stage._state.drawn)
        self._record(stage)
        program = stage._program
        if self._draw(stage) and controller._weights.swapping and program.mode == "generate":
            self._fail("admission", "a group is admitted while engines swap")
        if stage._step >= program.last:
            return
        buffered, rolling = stage._buffer._groups.keys(), stage._rollouts._rolling.keys()
        in_hand = (stage._ledger.step - stage._step) * program.bound.groups
        dropped = self._watch.dropped(controller._run.tally, stage._step)
        trained, drawn = self._history.trained(stage._step), stage._sampler.drawn.groups
        if drawn != trained + in_hand + len(buffered) + len(rolling) + dropped:
            self._fail(
                "no-task-lost",
                f"{drawn} groups were drawn, but {trained} trained on, {in_hand} in hand, {len(buffered)} buffered,"
                f" {len(rolling)} under way, {dropped} dropped",
            )
        if buffered & rolling:
            self._fail("no-task-twice", f"groups {sorted(buffered & rolling)} are buffered and under way")
        self._bound(controller, stage, in_hand + len(buffered) + len(rolling))

    def _bound(self, controller: Controller, stage: StageRun, ahead: int) -> None:
        program, bound = stage._program, stage._program.bound
        committed = stage._step
        if program.mode == "generate":
            served = controller._weights.version
            committed = served.step if served else bound.first_step
        submitted = (stage._step - bound.first_step) * bound.groups + ahead
        limit = (committed - bound.first_step + bound.max_staleness + 1) * bound.groups
        self._watch.most["ahead"] = max(self._watch.most["ahead"], ahead)
        if submitted > limit:
            self._fail("admission", f"{submitted} groups are submitted, of {limit} that version {committed} allows")

    def _record(self, stage: StageRun) -> None:
        """Take into the history what the run counts as trained."""
        for step in sorted(self._pending):
            if step < stage._step:
                groups = self._pending.pop(step).groups
                self._history.add(step + 1, {group.sequence: self._key(group) for group in groups})
        given = self._history.last
        if given != stage._step:
            self._fail("every-step", f"the run is at step {stage._step}, the trainer was given {given}")

    def _draw(self, stage: StageRun) -> bool:
        """Draw what the run has drawn, and remember each task with its epoch; whether there was anything new."""
        oracle = self._oracle
        assert oracle is not None
        new = oracle.drawn.groups < stage._sampler.drawn.groups
        sizes = {source.name: source.size for source in stage._sampler._sources}
        while oracle.drawn.groups < stage._sampler.drawn.groups:
            before = oracle.drawn.tasks
            sequence, task = oracle.draw()
            size = sizes[task.environment]
            if len(self._tasks) > KNOWN + 100:
                self._tasks = dict(list(self._tasks.items())[-KNOWN:])
            self._tasks[sequence] = task, before.get(task.environment, 0) // size if size else 0
        return new

    def trained(self, batch: Batch) -> None:
        """The trainer has made a step of `batch`."""
        stage = self._stage
        assert stage is not None
        program, incarnation = stage._program, stage._version().incarnation
        self._watch.note(f"trained step {batch.step + 1} on groups {[group.sequence for group in batch.groups]}")
        if len(batch.groups) != program.bound.groups:
            self._fail("groups-whole", f"batch {batch.step} has {len(batch.groups)} groups, not {program.bound.groups}")
        here: set[Key] = set()
        for group in batch.groups:
            self._group(group, batch.step, program, incarnation)
            key = self._key(group)
            if key in here or self._history.steps.get(key, NEVER) <= batch.step:
                self._fail("no-task-twice", f"{group.task} (group {group.sequence}) is trained on twice in an epoch")
            here.add(key)
        self._pending[batch.step] = batch

    def _key(self, group: TrajectoryGroup) -> Key:
        return self._tasks.get(group.sequence, (group.task, 0))

    def _group(self, group: TrajectoryGroup, step: int, program: StageProgram, incarnation: int) -> None:
        if [trajectory.member for trajectory in group] != list(range(program.group_size)):
            self._fail("groups-whole", f"group {group.sequence} has not the members 0 to {program.group_size - 1}")
        if self._tasks.get(group.sequence, (None, 0))[0] != group.task:
            self._fail("no-task-lost", f"group {group.sequence} is of {group.task}, which was not drawn there")
        for version in versions(group):
            lag = step - version.step
            if lag > program.bound.max_staleness:
                self._fail("staleness", f"group {group.sequence} has tokens of {version} in batch {step}: {lag} steps")
            if not self._history.origin(version, incarnation):
                self._fail("incarnation", f"group {group.sequence} has tokens of {version}, whose trainer was given up")


def versions(group: TrajectoryGroup) -> Iterable[WeightVersion]:
    """Of all its tokens that an engine drew."""
    codes = np.unique(np.concatenate([trajectory.columns["versions"] for trajectory in group]))
    return [WeightVersion.from_code(int(code)) for code in codes if code != NO_VERSION]
