"""One seed, from its first event to the end of its experiment: the controller's lives, and what is done to it."""

from __future__ import annotations

import json
import shutil
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from attrs import field, frozen

from areal_core.errors import RemoteError, RunFailed, WorkerLost
from areal_core.pipeline.compose import compose
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.evaluate import recorded
from areal_core.pipeline.events import Event
from areal_core.pipeline.run import EvaluationReport, StepReport
from areal_core.spec.experiment import Experiment
from areal_plugins.testing.mocks import transport
from areal_plugins.testing.sim import wires
from areal_plugins.testing.sim.disk import Disk
from areal_plugins.testing.sim.injuries import Injuries
from areal_plugins.testing.sim.loop import Killed, SimLoop, abandon
from areal_plugins.testing.sim.schedule import Kill, Mishap, Schedule, Strike, faulty
from areal_plugins.testing.sim.setting import Memory, cheaply, experiment_of, latest
from areal_plugins.testing.sim.watch import Broken, Watch
from areal_plugins.testing.sim.wires import SimWorker

SLOWEST = 30.0
"""How much longer than the shortest a call may take."""

DOOMED = 5
"""Failures in a row, each of them for a reason."""

EVALUATIONS = "evaluations.jsonl"

MOST = 5_000_000
"""Events of an experiment that never ends."""


@frozen
class Outcome:
    """What became of a seed: `broken` is the invariant that did not hold, with the `trace` of the events before it."""

    seed: int
    lives: int
    steps: int
    seconds: float
    events: int
    ends: tuple[str, ...]
    broken: Broken | None = None
    trace: tuple[str, ...] = ()
    seen: Counter[str] = field(factory=Counter)
    most: Counter[str] = field(factory=Counter)
    memory: tuple[Memory, ...] = ()


def play(schedule: Schedule, trace: int | None = 60) -> Outcome:
    """The whole experiment of `schedule`; the outcome's trace has its last `trace` events, None: all."""
    base = next((folder for folder in (Path("/dev/shm"),) if folder.is_dir()), None)  # noqa: S108  memory, if there is any
    folder = Path(tempfile.mkdtemp(prefix="areal-sim-", dir=base))
    try:
        with cheaply():
            return World(schedule, folder, trace).play()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class World:
    """Decides what happens to one experiment."""

    def __init__(self, schedule: Schedule, folder: Path, trace: int | None = None) -> None:
        self.schedule, self.folder = schedule, folder
        self.injuries = Injuries(schedule)
        self.watch = Watch(schedule.patience, trace, self.injuries.judge)
        self.ends: list[str] = []
        self.struck: set[Mishap] = set()
        self._random = Random(schedule.seed ^ 0x5EED)
        self._calls: Counter[str] = Counter()
        self._workers: dict[str, SimWorker] = {}
        self._offset = 0.0
        self._kills = list(schedule.kills)

    def play(self) -> Outcome:
        """Life after life, until the experiment is done."""
        broken = None
        try:
            self._live_on()
        except Broken as failure:
            broken = failure
        except Exception:  # of whatever code it is: the seed that leads there must be told
            broken = Broken("no-failure", traceback.format_exc(), self._offset)
        return Outcome(
            seed=self.schedule.seed,
            lives=len(self.ends),
            steps=self.watch.history.last,
            seconds=self._offset,
            events=self.watch.looks,
            ends=tuple(self.ends),
            broken=broken,
            trace=tuple(self.watch.trace),
            seen=self.watch.events,
            most=self.watch.most,
            memory=tuple(self.watch.memory),
        )

    def _live_on(self) -> None:
        experiment = experiment_of(self.folder, self.schedule.spec)
        run, resume = self.folder / "run", None
        lives = 12 + len(self.schedule.kills) + len(self.schedule.mishaps) + len(self.schedule.strikes)
        while not self.ends or self.ends[-1] != "done":
            if len(self.ends) == lives:
                raise Broken("progress", f"not done after {lives} lives: {self.ends}", self._offset)
            self.ends.append(_Life(self, experiment, run, resume).live())
            if self.watch.broken is not None:
                raise self.watch.broken
            if self.schedule.rates:
                return
            resume = self._spelt(latest(run))
            if (resume is not None and self._finished(experiment, resume)) or self._doomed():
                return

    def _doomed(self) -> bool:
        """Whether every life fails of the same: components that the spec tells to fail do so in each."""
        return not self._kills and faulty(self.schedule.spec) and self.ends[-DOOMED:] == ["failed"] * DOOMED

    def _spelt(self, checkpoint: Path | None) -> Path | None:
        """The same in other words now and then, so that a run saves again, over it, what it resumed from."""
        if checkpoint is None or self.schedule.seed % 3:
            return checkpoint
        return checkpoint.parent / ".." / checkpoint.parent.name / checkpoint.name

    def _finished(self, experiment: Experiment, resume: Path) -> bool:
        """Whether its last step is saved, and evaluated if it is to be: there is nothing to resume."""
        last: int = json.loads((resume / "pipeline.json").read_text())["step"]
        lacks = experiment.stages[-1].spec.evaluation.after and last not in recorded(resume.parents[1] / EVALUATIONS)
        return last >= sum(stage.spec.training.max_steps for stage in experiment.stages) and not lacks

    # --- what `wires` asks -----------------------------------------------------------------------------

    def strike(self, method: str) -> Strike | None:
        self._calls[method] += 1
        count = self._calls[method]
        for strike in self.schedule.strikes:
            if strike.method == method and strike.call == count:
                self.watch.note(f"! {method} number {count}: {strike.kind}")
                return strike
        return self._at_random(method)

    def _at_random(self, method: str) -> Strike | None:
        point = self._random.random() if method in self.schedule.rates else 1.0
        for kind, share in self.schedule.rates.get(method, ()):
            if point < share:
                return Strike(method, self._calls[method], kind, 86400.0)
            point -= share
        return None

    def seconds(self, method: str) -> float:
        least = self.schedule.latency.get(method, 0.0)
        return least * min(SLOWEST, (1.0 - self._random.random()) ** -0.7) if least else 0.0

    def hired(self, worker: SimWorker) -> None:
        self.watch.note(f"{worker.name} starts as {worker.address}")
        self._workers[worker.name] = worker
        if worker.spec.role == "engine":
            self.watch.engines[worker.address] = worker

    def hurt(self, worker: str, how: str, method: str = "") -> None:
        known = self._workers.get(worker)
        self.injuries.add(worker, method, known is not None and self.watch.joins(known))
        self.watch.note(f"! {worker}: {how}")

    def did(self, worker: SimWorker, method: str, args: tuple[Any, ...], result: Any) -> None:
        self.watch.did(worker, method, args, result)

    # --- what the schedule does ------------------------------------------------------------------------

    def strikes_back(self, life: _Life, mishap: Mishap) -> None:
        """Let `mishap` happen."""
        loop = life.loop
        self.struck.add(mishap)
        match mishap.kind:
            case "jump":
                self.watch.note(f"! the clock jumps {mishap.seconds:.0f} s")
                self.injuries.jumped()
                loop.advance(mishap.seconds)
            case "stop":
                self.watch.note("! somebody asks the run to stop")
                life.stop()
            case "disk-full":
                self.watch.note(f"! the disk is full for {mishap.seconds:.0f} s")
                life.disk.fill()
                self.injuries.disk = True
                loop.call_later(mishap.seconds, life.disk.drain)
            case _:
                worker = self._victim(mishap)
                if worker is not None:
                    self._hurt(loop, worker, mishap)

    def _victim(self, mishap: Mishap) -> SimWorker | None:
        role, number = mishap.victim
        alive = [worker for _, worker in sorted(self._workers.items()) if worker.spec.role == role and worker.alive]
        return alive[number % len(alive)] if alive else None

    def _hurt(self, loop: SimLoop, worker: SimWorker, mishap: Mishap) -> None:
        heartbeat = self.schedule.spec["supervision"].get("heartbeat_timeout", 60.0)
        lost = f"hung: not heard of for {heartbeat:g} s"
        match mishap.kind:
            case "die":
                worker.die("killed by the schedule")
            case "hang":
                worker.fall_silent(out_of_reach=False)
                loop.call_later(heartbeat, worker.give_up, lost, True)
            case "zombie":
                worker.fall_silent(out_of_reach=True)
                loop.call_later(heartbeat, worker.give_up, lost)
                loop.call_later(mishap.seconds, worker.wake)
            case "late":
                self.watch.note(f"! {worker.name} is silent for {mishap.seconds:.0f} s")
                worker.line.silent = True
                loop.call_later(mishap.seconds, worker.wake)
            case "slow":
                self.watch.note(f"! {worker.name} is slow for {mishap.seconds:.0f} s")
                worker.slow = 10.0
                loop.call_later(mishap.seconds, worker.recover)

    def next_life(self) -> Kill:
        """How the life that begins will end, if it is not over before."""
        self._workers.clear()
        self.injuries.heal()
        return self._kills.pop(0) if self._kills else Kill()


class _Life:
    """The controller from its start to its end, of one kind or another; it watches, and is watched."""

    def __init__(self, world: World, experiment: Experiment, folder: Path, resume: Path | None) -> None:
        self._world, self._watch, self._experiment = world, world.watch, experiment
        self._folder, self._resume = folder, resume
        self._kill = world.next_life()
        self._keep: int = world.schedule.spec["checkpoint"]["keep"]
        self._controller: Controller | None = None
        self._changes = self._saves = 0
        self._events = self._watch.looks
        self._started = self._killed = False
        self.disk = Disk(world.folder, self._change)
        self.loop = SimLoop(self._look)

    def live(self) -> str:
        """How it ended: `done`, `stopped`, `failed` or `killed`."""
        world, offset = self._world, self._world._offset
        self._watch.note(f"--- life {len(world.ends) + 1}, {'from ' + self._resume.name if self._resume else 'anew'}")
        for mishap in world.schedule.mishaps:
            if mishap not in world.struck:
                self.loop.call_at(max(0.0, mishap.at - offset), world.strikes_back, self, mishap)
        end = "broken"
        try:
            with self.disk.mounted():
                end = self._run()
        finally:
            world._offset += self.loop.time()
            self._dispose()
        if end in ("done", "stopped", "failed"):
            self._ended_well(end)
        killed, full, directory = end == "killed", self.disk.full, self._watch.directory
        last = directory.examine(self._folder, killed, full, self._keep) if self._folder.exists() else 0
        self._watch.note(f"--- {end} at step {last}")
        return end

    def stop(self) -> None:
        """Somebody asks."""
        if self._controller is not None:
            self._controller.stop("asked by the schedule")

    def _run(self) -> str:
        try:
            return self.loop.run_until_complete(self._main())
        except Killed:
            return "killed"
        except RunFailed as failure:
            self._watch.note(f"failed: {failure.__cause__!r}"[:300])
            if not self._excused(failure):
                self._watch.fail("no-failure", f"the run fails without a reason: {failure.__cause__!r}")
            return "failed"

    def _excused(self, failure: RunFailed) -> bool:
        controller, cause = self._controller, failure.__cause__
        assert controller is not None
        last = controller._run.events.step == self._composition.steps
        alone = not isinstance(cause, RemoteError | WorkerLost) or self._alone(controller, cause)
        return self._world.injuries.excuse(failure, self._started, last, alone)

    def _alone(self, controller: Controller, cause: RemoteError | WorkerLost) -> bool:
        """Whether nobody else does what a worker did: where one raised, those do not that are being replaced."""
        pools = (controller._crew.engines, controller._crew.rollouts)
        pool = next((pool for pool in pools if any(seat.name == cause.worker for seat in pool.seats)), None)
        others = [seat for seat in pool.seats if seat.name != cause.worker] if pool else []
        return not any(seat.ready for seat in others) if isinstance(cause, RemoteError) else not others

    async def _main(self) -> str:
        wires.fate.set(self._world)
        composition = compose(self._experiment, self._folder, self._world.schedule.debug)
        self._composition = composition
        self._controller = Controller(composition, self, resume=self._resume)
        self._watch.begin(self._controller, composition, self.loop)
        return (await self._controller.run()).outcome

    def _ended_well(self, end: str) -> None:
        controller = self._controller
        assert controller is not None
        left = [name for name, worker in self._world._workers.items() if worker.alive]
        if left:
            self._watch.fail("nothing-left", f"{', '.join(left)} still run after the run has ended ({end})")
        if end == "done":
            self._watch.done(controller)

    def _dispose(self) -> None:
        """Free what a process that ends frees."""
        self._killed = False
        if self._controller is not None:
            run = self._controller._run
            run.directory.close()
            run.trace.close()
            run.observers.close(1.0)
        self._watch.end()
        abandon(self.loop)
        transport._SHELVES.pop(str(self._folder / "work" / "weights"), None)

    # --- between any two events, and before any change of the disk -------------------------------------

    def _look(self) -> None:
        if self._killed:
            raise Killed
        events = self._watch.looks - self._events
        if self._kill.events is not None and events >= self._kill.events:
            self._watch.note("! the controller is killed")
            self._killed = True
            raise Killed
        if self._watch.looks > MOST and not self._world.schedule.rates:
            self._watch.fail("progress", f"{MOST} events, and no end")
        self._watch.look()

    def _change(self, event: str, path: Path, target: Path | None) -> None:
        if self._killed:
            raise Killed
        self._changes += self._started
        self._saves += self._started and "checkpoints" in path.parts
        if self._started and self._kill.strikes(self._changes, self._saves):
            self._watch.note(f"! the controller is killed before {event} of {path.name}")
            self._killed = True
            raise Killed
        if target is not None and target.parent.name == "checkpoints" and target.name.startswith("step-"):
            self._watch.renamed(path, target)

    # --- a watcher -------------------------------------------------------------------------------------

    def phase(self, text: str) -> None:
        self._started = self._started or text.startswith("stage")
        self._watch.events["phase"] += 1
        self._watch.note(text)

    def stepped(self, report: StepReport) -> None:
        if self._world.schedule.rates and report.step % 25 == 0:
            self._watch.memory.append(Memory.now(self.loop.time(), report.step))

    def evaluated(self, report: EvaluationReport) -> None:
        self._watch.events["evaluated"] += 1

    def happened(self, event: Event) -> None:
        self._watch.happened(event)
