"""The invariants, held against a run between any two of its events.

What must hold is compared with what the workers were seen to do, not with what the controller thinks of them:
versions with those that engines have loaded, tasks with those that a sampler of our own draws, what was trained
on with the batches that reached the trainer.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from attrs import frozen

from areal_core.data import Trajectory, WeightVersion
from areal_core.pipeline.compose import Composition
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.events import Event
from areal_core.pipeline.metrics import Tally
from areal_core.pipeline.recovery import LOST, RELOAD
from areal_core.workers.plans import GroupOrder, GroupResult
from areal_core.workers.seeds import derive
from areal_plugins.testing.mocks.engine import drawn_logprobs, spell
from areal_plugins.testing.sim.directory import Directory
from areal_plugins.testing.sim.groups import Groups, versions
from areal_plugins.testing.sim.history import History
from areal_plugins.testing.sim.setting import Memory
from areal_plugins.testing.sim.wires import SimWorker

EVERY = 200
"""Events between two looks at what is dear to count."""

OFTEN = 20
"""Events between two looks at what is less dear."""

SLACK = 5.0
"""Seconds that what is due may take, such as a clock that jumps has brought."""


@frozen
class Broken(BaseException):
    """An invariant does not hold."""

    invariant: str
    text: str
    at: float


class Watch:
    """Looks at one experiment, through all lives of its controller. `judge` says what is wrong with an event."""

    def __init__(self, patience: float, trace: int | None, judge: Callable[[Event], str]) -> None:
        self.history = History()
        self.trace: deque[str] = deque(maxlen=trace)
        self.events: Counter[str] = Counter()
        self.broken: Broken | None = None
        self.looks = 0
        self.most: Counter[str] = Counter()
        self.memory: list[Memory] = []
        self.engines: WeakValueDictionary[str, SimWorker] = WeakValueDictionary()
        self.directory, self._groups = Directory(self), Groups(self)
        self._patience, self._judge = patience, judge
        self._controller: Controller | None = None
        self._mark: tuple[Any, ...] = ()
        self._late: dict[tuple[str, str], float] = {}
        self._composition: Composition | None = None
        self._clock: Callable[[], float] = _zero

    # --- lives -----------------------------------------------------------------------------------------

    def begin(self, controller: Controller, composition: Composition, loop: asyncio.AbstractEventLoop) -> None:
        """A life begins, from the controller's own state."""
        self._controller, self._composition, self._clock = controller, composition, loop.time
        self._moved, self._mark, self._late = 0.0, (), {}
        self._groups.begin()
        self._stand(controller)

    def end(self) -> None:
        """A life has ended."""
        self._controller = None

    def _stand(self, controller: Controller) -> None:
        """A life begins, or the run goes back: what came after its state is forgotten.

        What was dropped meanwhile stays counted, though its draws are forgotten: that many are in `excess`.
        """
        state = controller._state
        self._incarnation, self._excess = state.incarnation, 0
        self.history.rewind(state.step)
        self.history.forks[state.incarnation] = state.step
        self.directory.stand(state.step)
        self._groups.forget()
        known = self.history.trained(state.step) + len(state.buffered) + len(state.under_way)
        self._excess = known + self.dropped(controller._run.tally, state.step) - state.drawn.groups
        if self._excess < 0:
            self.fail("no-task-lost", f"{-self._excess} groups were drawn, and are nowhere from step {state.step} on")

    def dropped(self, tally: Tally, step: int) -> int:
        """Groups that were dropped up to `step`, told of or still in `tally`."""
        return _given_up(tally) + self.history.given_up(step) - self._excess

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
        if problem := self._judge(event):
            self.fail("no-failure", problem)
        if event.kind == "dropped":
            self._dropped(event)

    def _dropped(self, event: Event) -> None:
        cause, stage = event.data["cause"], self._controller._stage if self._controller else None
        if cause == "stale" and stage is not None and not stage._program.bound.drop:
            self.fail("staleness", f"{event.data['groups']} groups were overtaken until they were too old")
        if cause not in (LOST, RELOAD):  # those are drawn again
            self.history.drop(event.step, event.data["groups"])

    def done(self, controller: Controller) -> None:
        """The run has ended as it should: nothing is left that was neither trained on nor dropped."""
        assert self._composition is not None
        steps, drawn = self._composition.steps, controller._state.drawn.groups
        trained, dropped = self.history.trained(steps), self.dropped(controller._run.tally, steps)
        if drawn != trained + dropped:
            self.fail("no-task-lost", f"{drawn} drawn, {trained} trained on, {dropped} dropped in the end")

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
        self._serving(controller)
        if controller._stage is not None:
            self._groups.look(controller, controller._stage)
        if self.looks % EVERY == 0:
            self._sizes(controller)
            self._progress(controller)
        if self.looks % OFTEN == 0:
            self._taken_back(controller)
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

    def _taken_back(self, controller: Controller) -> None:
        """Nobody waits for groups of an engine that was given up long ago."""
        assert self._composition is not None
        now, limit = self._clock(), self._composition.experiment.stages[0].spec.supervision.heartbeat_timeout
        workers: list[Any] = [seat.held for seat in controller._crew.rollouts.seats if seat.held is not None]
        used = ((worker.name, engine) for worker in workers for engine, groups in worker.uses.items() if groups)
        known = ((name, self.engines[engine]) for name, engine in used if engine in self.engines)
        late = [(name, engine.address) for name, engine in known if now - engine.lost_at > limit]
        self._late = {pair: self._late.get(pair, now) for pair in late}
        for (name, address), since in self._late.items():
            if now - since > SLACK:
                self.fail("taken-back", f"{name} is waited for, which waits for {address}, which was given up long ago")

    # --- what others see -------------------------------------------------------------------------------

    def renamed(self, source: Path, target: Path) -> None:
        """A directory becomes a checkpoint."""
        assert self._composition is not None
        self.directory.renamed(source, target, self._composition)

    def joins(self, worker: SimWorker) -> bool:
        """Whether an engine or rollout worker does not serve yet."""
        crew = self._controller._crew if self._controller else None
        if crew is None or worker.spec.role == "trainer":
            return False
        return not any(seat.held is worker and seat.ready for seat in (*crew.engines.seats, *crew.rollouts.seats))

    def did(self, worker: SimWorker, method: str, args: tuple[Any, ...], result: Any) -> None:
        """A worker has done something."""
        match worker.spec.role, method:
            case "engine", "setup":
                self._gave(worker, args[0].version)
            case "engine", "prepare":
                worker.offered.add(args[0].version)
            case "engine", "commit":
                if args[0] not in worker.offered:
                    self.fail("version-given", f"{worker.name} was told to serve {args[0]}, which it was never given")
                self._gave(worker, args[0])
            case "trainer", "train" if self._speaks(worker):
                self._groups.trained(args[0])
            case "rollout", "run_group":
                self._rolled_out(args[0], result)

    def _gave(self, worker: SimWorker, version: WeightVersion) -> None:
        worker.serves = version
        worker.served.add(version.code)

    def _speaks(self, worker: SimWorker) -> bool:
        """Whether it is rank 0 of the trainer that the run has now."""
        ranks = self._controller._crew.trainer.ranks if self._controller else ()
        return bool(ranks) and ranks[0] is worker

    def _rolled_out(self, order: GroupOrder, result: GroupResult) -> None:
        group, engine = result.group, self.engines.get(order.engine)
        if [trajectory.member for trajectory in group] != list(order.members):
            self.fail("groups-whole", f"group {group.sequence} came back with other members than were ordered")
        begun = set() if order.begun is None else {version.code for version in versions(order.begun)}
        self.events["continued"] += order.begun is not None
        if engine is not None and not {version.code for version in versions(group)} <= engine.served | begun:
            self.fail("version-given", f"group {group.sequence} has tokens of versions that {engine.name} never had")
        if order.mode == "generate":
            for trajectory in group:
                self._sampled(order, trajectory)

    def _sampled(self, order: GroupOrder, trajectory: Trajectory) -> None:
        """Its tokens are those that the mocks draw from its stream, one after the other, however often they began."""
        drawn = {name: column[trajectory.prompt_length :] for name, column in trajectory.columns.items()}
        tokens, seed = drawn["tokens"], derive(order.seed, order.members[0], 0)
        expected = drawn_logprobs(seed, trajectory.member - order.members[0], len(tokens))
        spelt = tokens - spell(0) == WeightVersion.steps_of(drawn["versions"])
        if not spelt.all() or not np.array_equal(drawn["logprobs"], expected):
            self.fail("tokens-sampled", f"group {order.sequence} has tokens that were not drawn as they are recorded")


def _zero() -> float:
    """The time before there is a clock."""
    return 0.0


def _given_up(tally: Tally) -> int:
    """Groups that are dropped for good: what is dropped when the run goes back is drawn again."""
    return sum(dropped.groups for cause, dropped in tally.dropped.items() if cause not in (LOST, RELOAD))
