"""One stage of training: takes batches, has them trained on, hands the weights over, and records each step."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from attrs import evolve

from areal_core.data import Batch, TrajectoryGroup, WeightVersion
from areal_core.pipeline.buffer import Buffer
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import StageProgram
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.dispatch import Dispatcher
from areal_core.pipeline.guard import Guard
from areal_core.pipeline.metrics import alarms, batch_metrics, note
from areal_core.pipeline.rollout import Rollouts
from areal_core.pipeline.run import Run
from areal_core.pipeline.staleness import Ledger
from areal_core.pipeline.stopwatch import Stopwatch
from areal_core.pipeline.tasks import Source, TaskSampler
from areal_core.pipeline.weights import Weights
from areal_core.workers.plans import TrainResult


class StageRun:
    """A stage under way, from `state` on; the same whether that came from a checkpoint or from the stage before."""

    def __init__(
        self,
        run: Run,
        crew: Crew,
        weights: Weights,
        dispatcher: Dispatcher,
        stopwatch: Stopwatch,
        program: StageProgram,
        sources: list[Source],
        state: PipelineState,
    ) -> None:
        self._run, self._crew, self._weights, self._program, self._state = run, crew, weights, program, state
        self._stopwatch, self._dispatcher = stopwatch, dispatcher
        self._sampler = TaskSampler(run.info.seed, sources, drawn=state.drawn)
        self._ledger = Ledger(program.bound, state.step)
        self._buffer = Buffer(self._ledger, run.condition, run.tally)
        self._rollouts = Rollouts(run, program, dispatcher, self._sampler, self._ledger, self._buffer)
        resumes = state.stage == program.name
        self._alarms = alarms(run.events, program.pipeline.max_staleness, state.alarms if resumes else {})
        self._guard = Guard(program.guard, run.events, state.norms if resumes else ())
        self._step = state.step
        self._in_hand: Batch | None = None
        self._admission: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        """The stage's."""
        return self._program.name

    @property
    def step(self) -> int:
        """Steps that are done, over the whole run."""
        return self._step

    @property
    def sound(self) -> bool:
        """Whether the trainer is between two steps: not when one broke off, of which it may have done a part."""
        return self._in_hand is None

    def begin(self) -> None:
        """Take up what was finished or under way, and admit more."""
        if self._state.stage == self._program.name:
            self._buffer.restore(self._state.buffered)
            self._rollouts.filtered = self._state.filtered
            partial = {group.sequence: group for group in self._state.partial}
            for sequence, task in self._state.under_way:
                self._rollouts.restart(sequence, task, partial.get(sequence))
        self._stopwatch.begin()
        self._admission = self._run.background.spawn(self._rollouts.admit())

    def committed(self, version: WeightVersion) -> None:
        """All engines serve `version`."""
        self._ledger.commit(version.step)

    async def advance(self) -> None:
        """One step.

        Raises:
            Stopped: between two steps, once the run is to stop.
            Unstable: the step is done, but changed nothing, and the run must not simply go on.

        """
        waited = self._run.trace.now()
        batch = await self._run.stop.race(self._buffer.take())
        self._in_hand = batch = evolve(batch, grad_limit=self._guard.limit)
        began = self._run.trace.now()
        result: TrainResult = await self._crew.trainer.call("train", batch)
        seconds = self._run.trace.span("train", "trainer", began, step=batch.step + 1)
        self._step, self._in_hand = batch.step + 1, None
        self._run.events.step = self._step
        handing_over = asyncio.ensure_future(self._hand_over())
        await asyncio.sleep(0)  # the trainer publishes while this process writes
        metrics = self._record(batch, result)
        self._stopwatch.stepped(self._program.name, self._step, metrics, began - waited, seconds)
        await handing_over
        self._guard.watch(self._step, batch.grad_limit, metrics)

    async def catch_up(self) -> None:
        """Return once the engines serve the trainer's weights."""
        await self._weights.settled()
        if self._weights.version != self._version():
            await self._weights.publish(self._version())
            await self._weights.settled()

    async def drain(self) -> None:
        """Finish what is under way, and admit nothing more."""
        await self._run.stop.race(self._rollouts.drain())

    async def close(self, cause: str) -> None:
        """End what is under way."""
        if self._admission is not None:
            self._admission.cancel()
        await self._rollouts.cancel(cause)

    def discard(self, cause: str, kept: Container[int] = ()) -> None:
        """Count as dropped what is finished and will not be trained on; not the groups `kept`, by sequence."""
        for group in self._finished:
            if group.sequence not in kept:
                self._run.tally.drop(cause, len(group.trajectories), group)

    def state(self) -> PipelineState:
        """What a checkpoint holds of it now."""
        return PipelineState(
            step=self._step,
            incarnation=self._state.incarnation,
            stage=self._program.name,
            drawn=self._sampler.drawn,
            buffered=self._finished,
            under_way=self._rollouts.under_way,
            tally=self._run.tally.copy(),
            elapsed=self._run.trace.elapsed,
            model=self._state.model,
            filtered=self._rollouts.filtered,
            recent=self._dispatcher.recent,
            alarms={alarm.name: alarm.state for alarm in self._alarms},
            norms=self._guard.norms,
        )

    @property
    def _finished(self) -> tuple[TrajectoryGroup, ...]:
        """In order of submission, a batch that was not trained on to its end among them."""
        in_hand = self._in_hand.groups if self._in_hand else ()
        return tuple(sorted((*self._buffer.groups, *in_hand), key=lambda group: group.sequence))

    async def _hand_over(self) -> None:
        """Publish the weights, unless no engine needs them before a later step or the next evaluation."""
        if self._program.mode == "generate":
            if self._step % self._program.publish_every == 0:
                await self._weights.publish(self._version())
        else:
            self._ledger.commit(self._step)
            self._run.condition.changed()

    def _version(self) -> WeightVersion:
        return WeightVersion(self._state.incarnation, self._step)

    def _record(self, batch: Batch, result: TrainResult) -> dict[str, float]:
        tally = self._run.tally
        tally.totals.trained += sum(trajectory.trained_units for trajectory in batch.trajectories)
        metrics = {
            **result.metrics,
            **batch_metrics(batch),
            **tally.flush(self._run.events),
            "queue": float(len(self._buffer)),
            "under_way": float(self._ledger.running),
            "tokens/generated": float(tally.totals.generated),
            "tokens/trained": float(tally.totals.trained),
            "sample_utilization": tally.totals.utilization,
            **tally.totals.setbacks,
        }
        note(metrics, self._run.events)
        for alarm in self._alarms:
            alarm.watch(metrics)
        self._run.directory.metrics.add({"step": self._step, "stage": self._program.name, **metrics})
        self._run.directory.trained(batch)
        self._run.observers.stepped(self._step, metrics)
        return metrics
