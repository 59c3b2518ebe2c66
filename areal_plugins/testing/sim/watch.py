"""The invariants, held against a run between any two of its events.

What must hold is compared with what the workers were seen to do, not with what the controller thinks of them:
versions with those that engines have loaded, tasks with those that a sampler of our own draws, what was trained
on with the batches that reached the trainer.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from attrs import frozen

from areal_core.data import NO_VERSION, Batch, TrajectoryGroup, WeightVersion
from areal_core.errors import CheckpointError
from areal_core.pipeline import checkpoint
from areal_core.pipeline.compose import Composition, StageProgram
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.events import Event
from areal_core.pipeline.metrics import Tally
from areal_core.pipeline.recovery import LOST, RELOAD
from areal_core.pipeline.staleness import NEVER
from areal_core.pipeline.tasks import TaskSampler
from areal_core.pipeline.train import StageRun
from areal_plugins.testing.sim.history import History, Key
from areal_plugins.testing.sim.wires import SimWorker

EVERY = 200
"""Events between two looks at what is dear to count."""


@frozen
class Broken(BaseException):
    """An invariant does not hold."""

    invariant: str
    text: str
    at: float


class Watch:
    """Looks at one experiment, through all lives of its controller."""

    def __init__(self, patience: float, trace: int | None) -> None:
        self.history = History()
        self.trace: deque[str] = deque(maxlen=trace)
        self.events: Counter[str] = Counter()
        self.broken: Broken | None = None
        self.looks = 0
        self.lost: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.memory: list[tuple[float, int, int]] = []
        self.engines: WeakValueDictionary[str, SimWorker] = WeakValueDictionary()
        self._patience = patience
        self._tasks: dict[int, Key] = {}
        self._controller: Controller | None = None
        self._mark: tuple[Any, ...] = ()
        self._composition: Composition | None = None
        self._clock: Callable[[], float] = _zero

    # --- lives -----------------------------------------------------------------------------------------

    def begin(self, controller: Controller, composition: Composition, loop: asyncio.AbstractEventLoop) -> None:
        """A life begins, from the controller's own state."""
        self._controller, self._composition, self._clock = controller, composition, loop.time
        self._stage: StageRun | None = None
        self._oracle: TaskSampler | None = None
        self._seen: tuple[Any, ...] = ()
        self._moved, self._mark = 0.0, ()
        self._stand(controller)

    def _stand(self, controller: Controller) -> None:
        """A life begins, or the run goes back: what came after its state is forgotten.

        What was dropped meanwhile stays counted, though its draws are forgotten: that many are in `excess`.
        """
        state = controller._state
        self._incarnation = state.incarnation
        self.history.rewind(state.step)
        self.history.forks[state.incarnation] = state.step
        self._pending: dict[int, Batch] = {}
        known = self.history.trained(state.step) + len(state.buffered) + len(state.under_way)
        self._excess = known + self._dropped(controller, state.step) - state.drawn.groups

    def _dropped(self, controller: Controller, step: int) -> int:
        """Groups that were dropped up to `step`, told of or not."""
        return _given_up(controller._run.tally) + self.history.given_up(step)

    def forget(self) -> None:
        """The experiment begins anew, in another run directory."""
        self.history, self._tasks = History(), {}

    def fail(self, invariant: str, text: str) -> None:
        """Something does not hold; the run is stopped after this event."""
        if self.broken is None:
            self.broken = Broken(invariant, text, self._clock())

    def note(self, text: str) -> None:
        """Something that a report should show."""
        self.trace.append(f"{self._clock():10.3f}  {text}")

    def happened(self, event: Event) -> None:
        """The run tells of an event."""
        self.events[event.kind] += 1
        self.note(f"[{event.kind}] {event.message}"[:200])
        if event.kind == "worker-lost":
            self.lost[event.data["worker"]] += 1
        if event.kind == "dropped" and event.data["cause"] not in (LOST, RELOAD):  # those are drawn again
            self.history.drop(event.step, event.data["groups"])

    # --- between any two events ------------------------------------------------------------------------

    def look(self) -> None:
        """Hold everything that is cheap to look at against what must be."""
        self.looks += 1
        controller = self._controller
        if self.broken is not None:
            raise self.broken
        if controller is None:
            return
        if controller._state.incarnation != self._incarnation:
            self.note(f"the trainer goes back to step {controller._state.step}")
            self._stand(controller)
            if self._excess < 0:
                self.fail(
                    "no-task-lost", f"{-self._excess} groups were drawn, and are nowhere after the trainer's loss"
                )
        self._serving(controller)
        stage = controller._stage
        if stage is not None:
            seen = (
                stage, stage._step, stage._ledger.step, stage._sampler._drawn, len(stage._rollouts._rolling),
                len(stage._buffer), controller._weights.version,
            )  # fmt: skip
            if seen != self._seen:
                self._seen = seen
                self._counts(controller, stage)
        if self.looks % EVERY == 0:
            self._sizes(controller)
            self._progress(controller)
        if self.broken is not None:
            raise self.broken

    def _serving(self, controller: Controller) -> None:
        """All engines that serve have the version that the run serves, but while they swap or the run ends."""
        weights = controller._weights
        offer = weights._offer
        if weights.swapping or offer is None or controller._run.stop.asked is not None:
            return
        version = offer.version
        for seat in controller._crew.engines.seats:
            serves = seat.held.serves if seat.ready else version  # type: ignore[union-attr]  # ours, and there
            if serves is not version and serves != version:
                self.fail("engines-agree", f"{seat.name} serves {serves}, the run {version}")

    def _counts(self, controller: Controller, stage: StageRun) -> None:
        """No task is lost, or in two places; what runs ahead is within the bound."""
        if stage is not self._stage:
            self._stage = stage
            self._oracle = TaskSampler(controller._run.info.seed, stage._sampler._sources, drawn=stage._state.drawn)
        self._record(stage)
        self._draw(stage)
        program = stage._program
        if stage._step >= program.last:
            return
        buffered, rolling = stage._buffer._groups.keys(), stage._rollouts._rolling.keys()
        in_hand = (stage._ledger.step - stage._step) * program.bound.groups
        given_up = self._dropped(controller, stage._step) - self._excess
        trained, drawn = self.history.trained(stage._step), stage._sampler.drawn.groups
        if drawn != trained + in_hand + len(buffered) + len(rolling) + given_up:
            self.fail(
                "no-task-lost",
                f"{drawn} groups were drawn, but {trained} trained on, {in_hand} in hand, {len(buffered)} buffered,"
                f" {len(rolling)} under way, {given_up} dropped",
            )
        if buffered & rolling:
            self.fail("no-task-twice", f"groups {sorted(buffered & rolling)} are buffered and under way")
        self._bound(controller, stage, in_hand + len(buffered) + len(rolling))

    def _bound(self, controller: Controller, stage: StageRun, ahead: int) -> None:
        program, bound = stage._program, stage._program.bound
        committed = stage._step
        if program.mode == "generate":
            served = controller._weights.version
            committed = served.step if served else bound.first_step
        submitted = (stage._step - bound.first_step) * bound.groups + ahead
        limit = (committed - bound.first_step + bound.max_staleness + 1) * bound.groups
        self.most["ahead"] = max(self.most["ahead"], ahead)
        if submitted > limit:
            self.fail("admission", f"{submitted} groups are submitted, of {limit} that version {committed} allows")

    def _record(self, stage: StageRun) -> None:
        """Take into the history what the run counts as trained."""
        for step in sorted(self._pending):
            if step < stage._step:
                groups = self._pending.pop(step).groups
                self.history.add(step + 1, {group.sequence: self._key(group) for group in groups})
        if len(self.history.sequences) != stage._step:
            given = len(self.history.sequences)
            self.fail("every-step", f"the run is at step {stage._step}, the trainer was given {given}")

    def _draw(self, stage: StageRun) -> None:
        """Draw what the run has drawn, and remember each task with its epoch."""
        oracle = self._oracle
        assert oracle is not None
        sizes = {source.name: source.size for source in stage._sampler._sources}
        while oracle.drawn.groups < stage._sampler.drawn.groups:
            before = oracle.drawn.tasks
            sequence, task = oracle.draw()
            size = sizes[task.environment]
            self._tasks[sequence] = task, before.get(task.environment, 0) // size if size else 0

    def _sizes(self, controller: Controller) -> None:
        """The controller's memory: what it holds is in proportion to what is under way."""
        run, stage = controller._run, controller._stage
        under_way = len(stage._rollouts._rolling) if stage else 0
        allowed = 40 + 4 * under_way + 4 * len(controller._crew._others)
        self._within("background tasks", len(run.background._tasks), allowed)
        self._within("waiters", len(run.condition._waiting), 4 * allowed)
        self._within("racing", len(run.stop._racing), 10)
        if stage is not None:
            self._within("ledger", len(stage._ledger._running_due) + len(stage._ledger._finished), 100)

    def _within(self, what: str, size: int, allowed: int) -> None:
        self.most[what] = max(self.most[what], size)
        if size > allowed:
            self.fail("memory", f"{size} {what}, where {allowed} are in proportion to what is under way")

    def _progress(self, controller: Controller) -> None:
        """Something comes to an end now and then."""
        stage = controller._stage
        mark = (controller._run.events.step, stage, self.events["phase"], self.events["evaluated"])
        now = self._clock()
        if mark != self._mark:
            self._mark, self._moved = mark, now
        elif now - self._moved > self._patience:
            from areal_plugins.testing.clock import _waiting

            self.fail("progress", f"nothing has come to an end for {now - self._moved:.0f} s; waiting in {_waiting()}")

    # --- what workers do -------------------------------------------------------------------------------

    def did(self, worker: SimWorker, method: str, args: tuple[Any, ...], result: Any) -> None:
        """A worker has done something."""
        match worker.spec.role, method:
            case "engine", "setup":
                self._gave(worker, args[0].version)
                worker.serves = args[0].version
            case "engine", "prepare":
                worker.offered.add(args[0].version)
            case "engine", "commit":
                if args[0] not in worker.offered:
                    self.fail("version-given", f"{worker.name} was told to serve {args[0]}, which it was never given")
                self._gave(worker, args[0])
                worker.serves = args[0]
            case "trainer", "train" if self._speaks(worker):
                self._trained(args[0])
            case "rollout", "run_group":
                self._rolled_out(args[0], result.group)

    def _gave(self, worker: SimWorker, version: WeightVersion) -> None:
        worker.served.add(version.code)

    def _speaks(self, worker: SimWorker) -> bool:
        """Whether it is rank 0 of the trainer that the run has now."""
        controller = self._controller
        return (
            controller is not None
            and bool(controller._crew.trainer.ranks)
            and (controller._crew.trainer.ranks[0] is worker)
        )

    def _rolled_out(self, order: Any, group: TrajectoryGroup) -> None:
        if [trajectory.member for trajectory in group] != list(order.members):
            self.fail("groups-whole", f"group {group.sequence} came back with other members than were ordered")
        engine = self.engines.get(order.engine)
        if engine is not None and not {version.code for version in _versions(group)} <= engine.served:
            self.fail("version-given", f"group {group.sequence} has tokens of versions that {engine.name} never had")

    def _trained(self, batch: Batch) -> None:
        """The trainer has made a step of `batch`."""
        stage = self._stage
        assert stage is not None
        program, incarnation = stage._program, stage._version().incarnation
        self.note(f"trained step {batch.step + 1} on groups {[group.sequence for group in batch.groups]}")
        if len(batch.groups) != program.bound.groups:
            self.fail("groups-whole", f"batch {batch.step} has {len(batch.groups)} groups, not {program.bound.groups}")
        here: set[Key] = set()
        for group in batch.groups:
            self._group(group, batch.step, program, incarnation)
            key = self._key(group)
            if key in here or self.history.steps.get(key, NEVER) <= batch.step:
                self.fail("no-task-twice", f"{group.task} (group {group.sequence}) is trained on twice in an epoch")
            here.add(key)
        self._pending[batch.step] = batch

    def _key(self, group: TrajectoryGroup) -> Key:
        return self._tasks.get(group.sequence, (group.task, 0))

    def _group(self, group: TrajectoryGroup, step: int, program: StageProgram, incarnation: int) -> None:
        if [trajectory.member for trajectory in group] != list(range(program.group_size)):
            self.fail("groups-whole", f"group {group.sequence} has not the members 0 to {program.group_size - 1}")
        if self._tasks.get(group.sequence, (None, 0))[0] != group.task:
            self.fail("no-task-lost", f"group {group.sequence} is of {group.task}, which was not drawn there")
        for version in _versions(group):
            lag = step - version.step
            if lag > program.bound.max_staleness:
                self.fail("staleness", f"group {group.sequence} has tokens of {version} in batch {step}: {lag} steps")
            if not self.history.origin(version, incarnation):
                self.fail("incarnation", f"group {group.sequence} has tokens of {version}, whose trainer was given up")

    # --- the run directory -----------------------------------------------------------------------------

    def renamed(self, source: Path, target: Path) -> None:
        """A directory becomes a checkpoint."""
        composition, controller = self._composition, self._controller
        assert composition is not None
        assert controller is not None
        step = int(target.name.removeprefix("step-"))
        self.note(f"checkpoint {target.name} is put in place")
        try:
            state = checkpoint.read(source, composition.identity())
            trainer = json.loads((checkpoint.trainer_state(source) / "state.json").read_text())
            model = json.loads((source / "config.json").read_text())
        except (OSError, ValueError, CheckpointError) as error:
            self.fail("checkpoint-whole", f"{target.name} is put in place before it is whole: {error}")
            return
        if not state.step == trainer["steps"] == model["steps"] == step:
            found = f"pipeline {state.step}, trainer {trainer['steps']}, model {model['steps']}"
            self.fail("checkpoint-whole", f"{target.name} has parts of other steps: {found}")
        self._complete(state)

    def _complete(self, state: Any) -> None:
        """All that was drawn is in the checkpoint, trained on, or dropped."""
        held = {group.sequence for group in state.buffered} | {sequence for sequence, _ in state.under_way}
        dropped = _given_up(state.tally) + self.history.given_up(state.step) - self._excess
        trained = {
            sequence for step, groups in self.history.sequences.items() if step <= state.step for sequence in groups
        }
        if held & trained:
            self.fail("no-task-twice", f"the checkpoint of step {state.step} holds {held & trained}, trained on before")
        if len(held) + dropped + len(trained) != state.drawn.groups:
            self.fail(
                "no-task-lost",
                f"the checkpoint of step {state.step} has drawn {state.drawn.groups} groups, but holds {len(held)};"
                f" {len(trained)} were trained on and {dropped} dropped",
            )

    def files(self, folder: Path, killed: bool) -> int:
        """The run directory after a life; the last step that it holds. A kill may leave one step without its groups."""
        metrics = _lines(folder / "metrics.jsonl", killed)
        steps = [line["step"] for line in metrics]
        if steps != list(range(1, len(steps) + 1)):
            self.fail("files", f"metrics.jsonl has the steps {steps}")
        last = len(steps)
        written: dict[int, list[int]] = {}
        for path in sorted((folder / "trajectories").glob("steps-*.jsonl")):
            for line in _lines(path, killed):
                written.setdefault(line["step"], []).append(line["sequence"])
        for step in range(1, last + 1):
            trained = sorted(self.history.sequences.get(step, ()))
            if sorted(written.get(step, [])) != trained and not (killed and step == last):
                self.fail("files", f"step {step} trained on {trained}, trajectories/ says {written.get(step)}")
        timings = [line["step"] for line in _lines(folder / "timings.jsonl", killed)]
        evaluations = [line["step"] for line in _lines(folder / "evaluations.jsonl", killed)]
        if sorted(set(timings)) != timings or (timings and timings[-1] > last):
            self.fail("files", f"timings.jsonl has the steps {timings} of {last}")
        if sorted(evaluations) != evaluations:
            self.fail("files", f"evaluations.jsonl has the steps {evaluations}")
        return last

    def done(self, controller: Controller) -> None:
        """The run has ended as it should: nothing is left that was neither trained on nor dropped."""
        assert self._composition is not None
        steps = self._composition.steps
        trained, given_up = self.history.trained(steps), self._dropped(controller, steps) - self._excess
        drawn = controller._state.drawn.groups
        if drawn != trained + given_up:
            self.fail("no-task-lost", f"{drawn} drawn, {trained} trained on, {given_up} dropped in the end")


def _zero() -> float:
    """The time before there is a clock."""
    return 0.0


def _given_up(tally: Tally) -> int:
    """Groups that are dropped for good: what is dropped when the run goes back is drawn again."""
    return sum(dropped.groups for cause, dropped in tally.dropped.items() if cause not in (LOST, RELOAD))


def _versions(group: TrajectoryGroup) -> Iterable[WeightVersion]:
    codes = np.unique(np.concatenate([trajectory.columns["versions"] for trajectory in group]))
    return [WeightVersion.from_code(int(code)) for code in codes if code != NO_VERSION]


def _lines(path: Path, torn: bool) -> list[dict[str, Any]]:
    """The objects of a file of lines; the last of a run that was killed may be cut short."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines(keepends=True)
    if torn and lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    return [json.loads(line) for line in lines]
