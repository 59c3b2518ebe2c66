"""When a run is evaluated, and what came of it so far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from attrs import evolve

from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.compose import StageProgram
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.evaluate import Evaluator, flat
from areal_core.pipeline.run import Run

Score = tuple[int, Mapping[str, float]]
"""The step after which an evaluation was done, and its figures."""


class Evaluations:
    """A run of `steps` steps is evaluated after each step at most once, one evaluation at a time."""

    def __init__(
        self, run: Run, crew: Crew, evaluator: Evaluator, steps: int, found: Mapping[int, Mapping[str, float]]
    ) -> None:
        """`found` are the evaluations that are done already, by step."""
        self._run, self._crew, self._evaluator, self._steps = run, crew, evaluator, steps
        self._found = dict(found)
        self._under_way: asyncio.Task[None] | None = None

    @property
    def scores(self) -> tuple[Score, ...]:
        """What they found, in order."""
        return tuple(self._found.items())

    def within(self, state: PipelineState) -> PipelineState:
        """`state` with the scores so far."""
        return evolve(state, scores=self.scores)

    async def now(self, program: StageProgram, step: int) -> None:
        """Evaluate while nothing else goes on."""
        await self._run.stop.race(self._evaluate(program, step))

    async def first(self, program: StageProgram, step: int) -> None:
        """Evaluate before the first step, where that is asked for and was not done."""
        if program.evaluation.before and step == 0 and not self._found:
            await self.now(program, step)

    async def last(self, program: StageProgram, step: int) -> None:
        """Evaluate after the last step, where that is asked for."""
        if program.evaluation.after:
            self._run.watcher.phase("evaluating")
            await self.now(program, step)

    async def if_due(self, program: StageProgram, step: int, catch_up: Callable[[], Awaitable[None]]) -> None:
        """Evaluate beside the training, where it is time; `catch_up` brings the engines up to date.

        Once a step, whatever came between: a run that ends while it evaluates does so again when it is resumed.
        """
        every, at_end = program.evaluation.every, step == self._steps and program.evaluation.after
        if not every or step % every or at_end or step in self._found:
            return
        if self._under_way is not None and not self._under_way.done():
            text = f"the evaluation after step {step} is left out: the one before still runs"
            self._run.events.add("no-evaluation", text)
            return
        if program.mode != "generate" or program.publish_every > 1:
            await catch_up()
        self._under_way = self._run.background.spawn(self._evaluate(program, step))

    async def idle(self) -> None:
        """Return once none is under way."""
        if self._under_way is not None:
            await self._under_way

    def go_back(self, step: int) -> None:
        """Forget what was after `step`, and the one under way, which has ended."""
        self._found = {at: figures for at, figures in self._found.items() if at <= step}
        self._under_way = None

    async def _evaluate(self, program: StageProgram, step: int) -> None:
        sources = await self._crew.sources(program.evaluation.split)
        report = await self._evaluator.run(program, sources, step)
        if report is not None:
            self._found[step] = flat(report)
