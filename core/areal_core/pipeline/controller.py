"""Runs an experiment from its first step or a checkpoint to its end, and leaves nothing behind but its files."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pluggy
from attrs import evolve

from areal_core.contexts import RunSummary
from areal_core.data import WeightVersion
from areal_core.errors import ArealError, CheckpointError, RemoteError, RunFailed, WorkerLost
from areal_core.pipeline import checkpoint, dispatch, resuming, supervise
from areal_core.pipeline.background import Background, Stopped, completed
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import Composition, StageProgram
from areal_core.pipeline.control import Change
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.dispatch import Dispatcher
from areal_core.pipeline.elastic import Elastic
from areal_core.pipeline.evaluate import Evaluator, first_and_last
from areal_core.pipeline.evaluations import Evaluations
from areal_core.pipeline.garbage import search_recent, seldom_searched
from areal_core.pipeline.opening import open_executor, open_run, rewind
from areal_core.pipeline.recovery import LOST, RELOAD, Recovery, Setback
from areal_core.pipeline.run import Watcher
from areal_core.pipeline.saving import Saver
from areal_core.pipeline.stopwatch import Stopwatch
from areal_core.pipeline.supervise import Supervisor
from areal_core.pipeline.train import StageRun
from areal_core.pipeline.weights import Weights

OBSERVERS_GRACE = 30.0
"""Seconds that observers and trackers get to finish once the run has ended."""

AT_ONCE = 1.0
"""Seconds that workers get to remove what is theirs when the run is to end without delay."""


class Controller:
    """One run. Make it on the loop that runs it.

    `resume` is a checkpoint to go on from, `warm_start` a model directory to begin with instead of
    the spec's model. Where a run began in the directory already and `resume` is None, it begins again.
    `damaged` are checkpoints that were passed over; `provenance` goes into the run directory.
    """

    def __init__(
        self,
        composition: Composition,
        watcher: Watcher,
        hooks: pluggy.PluginManager | None = None,
        resume: Path | None = None,
        warm_start: Path | None = None,
        provenance: Mapping[str, Any] | None = None,
        damaged: Iterable[CheckpointError] = (),
    ) -> None:
        self._composition, self._resume, self._damaged = composition, resume, tuple(damaged)
        self._again = resuming.begin_again(composition.folder) if resume is None else None
        began = PipelineState(model=str(warm_start.absolute()) if warm_start else self._again or "")
        self._state = began if resume is None else resuming.state_of(resume, composition)
        self._first = (resume, self._state)
        self._run = open_run(composition, self._state, watcher, hooks, provenance or {}, self._damaged)
        self._executor = open_executor(composition, self._run.events)
        supervision = composition.experiment.stages[0].spec.supervision
        run = self._run
        self._lasting = Background(run.stop, lasting=True)
        self._supervisor = Supervisor(
            self._executor, self._lasting, run.condition, run.events, run.observers.failed,
            supervise.persistence(supervision), supervise.checkup(supervision, run.events, composition.debug),
        )  # fmt: skip
        self._crew = Crew(
            composition, self._executor, self._supervisor, run.condition, lambda *engine: self._weights.join(*engine)
        )
        self._weights = Weights(
            self._crew.trainer, self._crew.engines, composition.route, run.background, run.condition, run.events,
            run.trace, self._committed, supervision.update_timeout,
        )  # fmt: skip
        self._recovery = Recovery(
            self._crew.trainer, self._weights, supervise.persistence(supervision), run.events,
            self._supervisor.mourn, supervision.max_reloads,
        )  # fmt: skip
        self._dispatcher = Dispatcher(
            self._crew.engines, self._crew.rollouts, lambda: self._weights.swapping, run.condition, run.events,
            dispatch.patience(supervision, composition.debug), self._state.recent,
        )  # fmt: skip
        evaluator = Evaluator(run, self._dispatcher, len(composition.engines) * composition.slots)
        done = resuming.evaluated(composition.folder, self._state)
        self._evaluations = Evaluations(run, self._crew, evaluator, composition.steps, done)
        self._stopwatch = Stopwatch(run, self._crew, self._weights, composition.steps)
        self._elastic = Elastic(self._crew, self._lasting, run.events, str(composition.folder))
        self._stage: StageRun | None = None
        self._between: PipelineState | None = None
        self._attending: asyncio.Task[None] | None = None
        keep = composition.experiment.stages[0].spec.checkpoint.keep
        self._saver = Saver(run, self._crew, composition.identity(), keep, resume)

    def stop(self, reason: str) -> None:
        """End after the step that is being trained, with a checkpoint."""
        self._run.stop.ask(reason)
        self._run.events.add("stop", f"stopping: {reason}", "info", reason=reason)

    async def scale(self, engines: int) -> Change:
        """Have so many engines, while the run goes on; see `Elastic.scale`."""
        return await self._elastic.scale(engines)

    async def run(self) -> RunSummary:
        """How the run ended: `done`, or `stopped` when `stop` was called.

        Raises:
            RunFailed: it ended early; what was computed is in the run directory.

        """
        try:
            with seldom_searched():
                await self._attempt()
            if self._run.stop.asked is not None:
                await self._save_what_there_is()
            await self._saver.settled()
            return self._conclude()
        except asyncio.CancelledError:
            self._elastic.end()
            await self._lasting.cancel()  # nobody is to be replaced
            await self._run.background.cancel()
            await self._crew.end(AT_ONCE)
            raise
        finally:
            await completed(self._close(), hurry=lambda: self._crew.end(AT_ONCE))

    async def _attempt(self) -> None:
        """Everything up to the last step, going on from the last checkpoint whenever the trainer is lost."""
        if await self._succeeds(self._start()):
            while not await self._succeeds(self._train()) and (setback := self._setback()):
                await self._succeeds(self._go_back(setback))

    async def _succeeds(self, work: Coroutine[Any, Any, None]) -> bool:
        """Whether `work` came to its end; whatever goes wrong on the way stops the run as its cause."""
        try:
            await work
        except Stopped:
            return False
        except Exception as error:
            self._run.stop.fail(error)
            return False
        return True

    def _setback(self) -> Setback | None:
        """How to get over what stopped the run, if that can be."""
        stop = self._run.stop
        try:
            return self._recovery.judge(stop.cause, self._saver.saved)
        except ArealError as error:
            stop.cause = error
            return None

    async def _train(self) -> None:
        """Every stage, from where the run stands."""
        if self._crew.trainer.broken:
            await self._run.stop.race(self._crew.restart_trainer())
        self._recovery.began()
        self._attending = self._run.background.spawn(self._attend())
        for program in resuming.stages_left(self._state, self._composition):
            await self._run_stage(program)
        await self._finish()

    async def _attend(self) -> None:
        """Be there when the trainer is lost, whatever everyone else waits for."""
        raise WorkerLost(self._crew.trainer.name, await self._supervisor.attend(self._crew.trainer))

    async def _go_back(self, setback: Setback) -> None:
        """Give up what is under way, and stand where a resume of the run would begin."""
        run, lost = self._run, self._run.events.step
        stage, self._stage, self._between = self._stage, None, None
        await self._give_up(stage, setback.cause)
        run.stop.overcome()
        search_recent()
        self._resume, state, damaged = await self._last_good()
        self._state = evolve(state, incarnation=self._state.incarnation + 1)
        if setback.cause == RELOAD and (self._resume is None or stage is None or state.stage != stage.name):
            self._crew.trainer.kill(setback.reason)  # it can only go back to a state of the stage that it is in
        if stage is not None:
            stage.discard(setback.cause, kept={group.sequence for group in state.buffered})
        run.tally.totals.restarts += setback.cause == LOST
        run.tally.totals.reloads += setback.cause == RELOAD
        dropped = await rewind(run, self._state, damaged, setback.cause)
        self._evaluations.go_back(state.step)
        await self._weights.forget()
        self._recovery.went_back(setback, lost, self._state, dropped)
        await run.stop.race(asyncio.sleep(setback.wait))

    async def _give_up(self, stage: StageRun | None, cause: str) -> None:
        """End all that belongs to the training that ended. Engines and rollout workers live on."""
        if stage is not None:
            await stage.close(cause)
        await self._saver.settled()  # what is being written may be the checkpoint to go back to
        await self._run.background.cancel()

    async def _last_good(self) -> tuple[Path | None, PipelineState, Sequence[CheckpointError]]:
        """The newest checkpoint of this run that is whole and what it holds, else how it began; and what is damaged."""
        if self._saver.saved is None:
            return *self._first, ()
        found, damaged = await asyncio.to_thread(checkpoint.newest, self._composition.folder)
        self._tell(damaged)
        if found is None and damaged:
            raise damaged[0]
        if found is None:
            return *self._first, ()
        self._saver.saved = found
        return found, await asyncio.to_thread(checkpoint.read, found, self._composition.identity()), damaged

    def _tell(self, damaged: Iterable[CheckpointError]) -> None:
        for problem in damaged:
            text = f"passed over: {problem}"
            self._run.events.add("damaged-checkpoint", text, path=problem.path, problem=problem.problem)

    async def _start(self) -> None:
        run, state = self._run, self._state
        self._tell(self._damaged)
        if self._again is not None:
            text = "there is no checkpoint to go on from: the run begins again from step 0"
            run.events.add("begins-again", text, model=self._again)
        run.watcher.phase("starting workers")
        version = WeightVersion(state.incarnation, state.step)
        await run.stop.race(self._crew.start(version, state.model))
        run.observers.started()

    async def _run_stage(self, program: StageProgram) -> None:
        run = self._run
        run.watcher.phase(f"stage {program.name}")
        await run.stop.race(self._begin_stage(program))
        self._recovery.over(self._state.step, self._state.incarnation)
        await self._evaluations.first(program, self._state.step)
        await self._enter(program)
        if self._resume is not None and self._state.stage == program.name:
            await self._evaluate(program)
        while self._now.step < program.last:
            await self._now.advance()
            await self._between_steps(program)
        self._now.discard("end of stage")
        await self._now.close("end of stage")
        await run.stop.race(self._now.catch_up())
        await run.stop.race(self._beside())
        self._state = evolve(self._now.state(), buffered=(), under_way=())

    async def _begin_stage(self, program: StageProgram) -> None:
        """Bring trainer, rollout workers and engines to where the stage begins, or goes on."""
        state, trainer = self._state, self._crew.trainer
        self._stage = self._between = None
        try:
            await trainer.call("begin_stage", program.order)
            if self._resume is not None and state.stage == program.name:
                await trainer.call("load_state", str(checkpoint.trainer_state(self._resume)))
        except RemoteError as error:
            if self._recovery.going_back:  # in a new process it may succeed
                trainer.kill(f"it could not go back: {error}")
            raise
        self._between = evolve(state, stage=program.name)
        await self._crew.begin(program)
        version = WeightVersion(state.incarnation, state.step)
        if self._weights.version != version:
            await self._weights.publish(version)
            await self._weights.settled()

    async def _enter(self, program: StageProgram) -> None:
        """Take up the stage where the state says."""
        sources = await self._run.stop.race(self._crew.sources("train"))
        self._stage = StageRun(
            self._run, self._crew, self._weights, self._dispatcher, self._stopwatch, program, sources, self._state
        )
        self._stage.begin()

    async def _between_steps(self, program: StageProgram) -> None:
        await self._evaluate(program)
        step, saves = self._now.step, self._composition.experiment.stages[0].spec.checkpoint.every
        if saves and step % saves == 0 and step != self._composition.steps:
            await self._checkpoint(program)

    async def _checkpoint(self, program: StageProgram) -> None:
        """Save while all else goes on. A debug run comes to rest first, and goes on as a resumed one would."""
        if not self._composition.debug:
            await self._saver.save_beside(self._evaluations.within(self._now.state()))
            return
        await self._rest()
        self._state = self._now.state()
        await self._saver.save_beside(self._evaluations.within(self._state))
        await self._saver.settled()
        await self._now.close("checkpoint")
        await self._run.stop.race(self._renew(WeightVersion(self._state.incarnation, self._state.step)))
        if self._state.step < program.last:
            await self._enter(program)

    async def _renew(self, version: WeightVersion) -> None:
        """Have fresh engines and rollout workers; where the trainer is lost meanwhile they come all the same."""
        await asyncio.shield(self._lasting.spawn(self._crew.renew(version)))

    async def _rest(self) -> None:
        await self._run.stop.race(self._now.catch_up())
        await self._now.drain()
        await self._run.stop.race(self._beside())

    async def _beside(self) -> None:
        """Return once what runs beside the training loop is done."""
        await self._evaluations.idle()
        await self._stopwatch.idle()

    async def _evaluate(self, program: StageProgram) -> None:
        async def catch_up() -> None:
            await self._run.stop.race(self._now.catch_up())

        await self._evaluations.if_due(program, self._now.step, catch_up)

    async def _finish(self) -> None:
        """After the last step: save, and see what came of it."""
        program = self._composition.stages[-1]
        await self._saver.save(self._evaluations.within(self._state))
        self._stage = self._between = None
        if self._attending is not None:
            self._attending.cancel()  # from here on nobody needs the trainer
        await self._evaluations.last(program, self._state.step)

    async def _save_what_there_is(self) -> None:
        """A checkpoint of a run that ends early, if its trainer is between two steps of a stage, or of two stages.

        None when an exchange of weights broke off: the trainer might never answer.
        """
        state, sound = self._between, self._weights.sound
        if self._stage is not None:
            state, sound = await self._saver.with_partial(self._stage.state()), sound and self._stage.sound
            await self._stage.close("stopped")
        if state is None or not sound or self._crew.trainer.broken or (self._stage is None and state.step == 0):
            return
        if self._composition.debug:
            text = "a debug run goes on from where it last came to rest, so that it repeats itself to the last bit"
            self._run.events.add("no-checkpoint", text, "info", of=state.step, cause="debug mode")
            return
        self._run.watcher.phase("saving a checkpoint")
        try:
            await self._saver.save(self._evaluations.within(state))
        except (ArealError, OSError) as error:
            self._run.events.add("no-checkpoint", f"the last checkpoint could not be written: {error}", "error")

    @property
    def _now(self) -> StageRun:
        assert self._stage is not None
        return self._stage

    def _committed(self, version: WeightVersion) -> None:
        if self._stage is not None:
            self._stage.committed(version)
        self._run.observers.published(version)

    def _conclude(self) -> RunSummary:
        stop = self._run.stop
        outcome = "done" if stop.asked is None else "failed" if stop.cause is not None else "stopped"
        summary = RunSummary(
            outcome=outcome,
            steps=self._run.events.step,
            seconds=self._run.trace.elapsed,
            evaluations=first_and_last(self._evaluations.scores),
            cause=_text(stop.cause) if stop.cause else stop.asked or "",
            checkpoint=str(self._saver.saved or ""),
        )
        self._run.observers.finished(summary)
        if stop.cause is None:
            return summary
        trace = "".join(traceback.format_exception(stop.cause))
        self._run.events.add("run-failed", summary.cause, "error", traceback=trace)
        failure = RunFailed(summary.cause, str(self._composition.folder), resuming.command(self._composition))
        failure.exit_code = getattr(stop.cause, "exit_code", RunFailed.exit_code)
        raise failure from stop.cause

    def way_on(self) -> str:
        """How this run can be continued, with the command."""
        if self._saver.saved is not None:
            return f"go on with: {resuming.command(self._composition)}"
        lacking = "there is no checkpoint" if self._run.events.step else "nothing was trained"
        return f"{lacking} yet; begin again with: {resuming.command(self._composition)}"

    async def _close(self) -> None:
        run = self._run
        self._elastic.end()
        async with AsyncExitStack() as ending:  # from the last to the first, whichever of them fails
            ending.callback(run.directory.close)
            ending.callback(run.trace.close)
            ending.push_async_callback(asyncio.to_thread, run.observers.close, OBSERVERS_GRACE)
            ending.callback(checkpoint.tidy, run.directory.checkpoints)  # nobody writes there any more
            ending.push_async_callback(self._executor.close)
            ending.push_async_callback(run.background.cancel)
            ending.push_async_callback(self._lasting.cancel)


def _text(error: BaseException) -> str:
    return str(error) if isinstance(error, ArealError) else f"{type(error).__name__}: {error}"
