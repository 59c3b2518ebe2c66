"""Admits groups in order of submission, for as long as the bound has room, and collects them."""

from __future__ import annotations

import asyncio
from functools import partial

from attrs import frozen

from areal_core.data import TaskRef, TrajectoryGroup
from areal_core.errors import ComponentError
from areal_core.pipeline.buffer import Buffer
from areal_core.pipeline.compose import StageProgram
from areal_core.pipeline.dispatch import Dispatcher, GroupFailed
from areal_core.pipeline.run import Run
from areal_core.pipeline.staleness import Ledger
from areal_core.pipeline.tasks import TaskSampler, rollout_seed
from areal_core.workers.plans import GroupOrder, GroupResult

STARVED = 100
"""Batches' worth of groups that may be filtered out in a row."""


@frozen
class _Rolling:
    """A group under way."""

    task: TaskRef
    work: asyncio.Task[None]


class Rollouts:
    """The groups of one stage that are under way: as many as the bound has room for, or `queue_size`."""

    def __init__(
        self,
        run: Run,
        program: StageProgram,
        dispatcher: Dispatcher,
        sampler: TaskSampler,
        ledger: Ledger,
        buffer: Buffer,
    ) -> None:
        self._run, self._program, self._dispatcher = run, program, dispatcher
        self._sampler, self._ledger, self._buffer = sampler, ledger, buffer
        self.filtered = 0  # groups in a row
        self._members = tuple(range(program.group_size))
        self._rolling: dict[int, _Rolling] = {}
        self._admits = True

    @property
    def under_way(self) -> tuple[tuple[int, TaskRef], ...]:
        """By place in the order of submission."""
        return tuple((sequence, self._rolling[sequence].task) for sequence in sorted(self._rolling))

    def restart(self, sequence: int, task: TaskRef, partial: TrajectoryGroup | None) -> None:
        """Go on with what was under way when the checkpoint was written, unless the bound has become too small.

        A group of which nothing was drawn, or which had another size, begins anew.
        """
        fits = partial is not None and len(partial.trajectories) == len(self._members)
        oldest = partial.oldest if partial is not None and fits and self._program.mode == "generate" else None
        if not self._ledger.room():
            self._run.tally.drop("surplus", len(self._members))
        elif oldest is None:
            self._count(sequence)
            self._launch(sequence, task)
        elif self._ledger.resume(sequence, oldest.step):
            self._launch(sequence, task, partial)
        else:
            self._run.tally.drop("stale", len(self._members))

    async def admit(self) -> None:
        """Admit groups until cancelled."""
        while True:
            await self._run.condition.until(self._may_admit)
            sequence, task = self._sampler.draw()
            self._count(sequence)
            self._launch(sequence, task)

    async def drain(self) -> None:
        """Admit nothing more, and return once nothing is under way."""
        self._admits = False
        await self._run.condition.until(lambda: not self._rolling)

    async def cancel(self, cause: str) -> None:
        """End what is under way, and count it as dropped."""
        rolling = list(self._rolling.values())
        for entry in rolling:
            entry.work.cancel()
        await asyncio.gather(*(entry.work for entry in rolling), return_exceptions=True)
        for sequence in list(self._rolling):
            self._drop(sequence, cause)

    def _may_admit(self) -> bool:
        size = self._program.pipeline.queue_size
        free = size == "auto" or len(self._rolling) < size
        return self._admits and free and self._ledger.room() and self._dispatcher.can(self._program.mode)

    def _launch(self, sequence: int, task: TaskRef, begun: TrajectoryGroup | None = None) -> None:
        order = GroupOrder(
            sequence=sequence,
            task=task,
            members=self._members,
            sampling=self._program.sampling,
            seed=rollout_seed(self._run.info.seed, sequence),
            mode=self._program.mode,
            timeout=self._program.timeout(task.environment),
            begun=begun,
        )
        self._rolling[sequence] = _Rolling(task, self._run.background.spawn(self._roll(order)))

    def _count(self, sequence: int) -> None:
        self._ledger.admit(sequence, ages=self._program.mode == "generate")

    async def _roll(self, order: GroupOrder) -> None:
        began = self._run.trace.now()
        try:
            result = await self._dispatcher.run(
                order,
                again=partial(self._count, order.sequence),
                awaited=partial(self._ledger.awaits, order.sequence),
            )
        except GroupFailed as failure:
            self._drop(order.sequence, "failed")
            if failure.fatal is not None:
                raise failure.fatal from failure
        else:
            if order.mode == "generate":
                facts = {"task": str(order.task), "reward_seconds": result.reward_seconds}
                self._run.trace.overlapping("group", "rollout", order.sequence, began, **facts)
            self._collect(result)
        finally:
            self._run.condition.changed()

    def _collect(self, result: GroupResult) -> None:
        group = result.group
        self._run.tally.collected(group)
        if self._program.filter is not None and not self._program.filter.keep(group.rewards):
            self._drop(group.sequence, "filtered", result)
            self._starve()
            return
        self.filtered = 0
        del self._rolling[group.sequence]
        self._buffer.add(group)
        self._run.observers.collected(group)

    def _starve(self) -> None:
        """One more group in a row was filtered out; a task set that never yields a kept one ends the run."""
        self.filtered += 1
        if self.filtered >= STARVED * self._ledger.bound.groups:
            problem = f"not one of {self.filtered} groups in a row was worth training on: all their rewards are equal"
            raise ComponentError(f"objective/{self._program.order.objective.name}", "dynamic sampling", problem)

    def _drop(self, sequence: int, cause: str, result: GroupResult | None = None) -> None:
        del self._rolling[sequence]
        self._ledger.drop(sequence)
        self._run.tally.drop(cause, len(self._members), result.group if result else None)
