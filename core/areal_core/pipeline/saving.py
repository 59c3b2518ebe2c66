"""Writes checkpoints while training goes on, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from areal_core.errors import ArealError, RemoteError, WorkerLost
from areal_core.pipeline import checkpoint
from areal_core.pipeline.background import Background
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.partial import reported
from areal_core.pipeline.run import Run


class Saver:
    """Training waits for the trainer's copy of its state; that is written, checked and named beside it.

    `saved` is the newest checkpoint that is whole.
    """

    def __init__(self, run: Run, crew: Crew, identity: Mapping[str, Any], keep: int, saved: Path | None) -> None:
        self._run, self._trainer, self._rollouts = run, crew.trainer, crew.rollouts
        self._identity, self._keep = identity, keep
        self.saved = saved
        self._beside = Background(run.stop)  # not the run's own: what is being written is not to be broken off
        self._writing: asyncio.Task[None] | None = None

    async def save(self, state: PipelineState) -> None:
        """Write one, after the one under way, unless there is one of this step; return once it is whole.

        Raises:
            ArealError, OSError: it could not be written, and nothing is left of it.

        """
        await self.settled()
        if self.saved != self._run.directory.checkpoints / f"step-{state.step}":
            await self._write(await self._copy(state), state)

    async def save_beside(self, state: PipelineState) -> None:
        """Begin one, and return once the trainer may go on; one that is not written is an event, not the run's end.

        Nobody waits for what was drawn so far of the groups under way but the checkpoint.
        """
        if self._writing is not None and not self._writing.done():
            self._none(state, "the one before is still being written")
            return
        whole, fresh = self._beside.spawn(self.with_partial(state)), None
        try:
            fresh = await self._copy(state)
        except (RemoteError, OSError) as error:
            self._none(state, str(error))
        else:
            self._writing = self._beside.spawn(self._write_beside(fresh, whole))
        finally:
            if fresh is None:
                whole.cancel()

    async def with_partial(self, state: PipelineState) -> PipelineState:
        """`state` with what is known of its groups under way, after a few seconds at most."""
        return await reported(state, self._rollouts, self._run.events)

    async def settled(self) -> None:
        """Return once nothing is being written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _copy(self, state: PipelineState) -> Path:
        """The directory that the trainer writes to, once training may go on."""
        began = self._run.trace.now()
        fresh = await asyncio.to_thread(checkpoint.begin, self._run.directory.checkpoints, state.step)
        try:
            await self._trainer.call("save_model", str(fresh))
            await self._trainer.call("save_state", str(checkpoint.trainer_state(fresh)))
        except Exception:  # not when cancelled: whoever writes there goes on, and the next save removes it
            await self._written()
            await asyncio.to_thread(checkpoint.give_up, fresh)
            raise
        self._run.trace.span("copy", "trainer", began, step=state.step)
        return fresh

    async def _write(self, fresh: Path, state: PipelineState) -> None:
        began = self._run.trace.now()
        try:
            for outcome in await self._written():
                if isinstance(outcome, BaseException):
                    raise outcome
            await asyncio.to_thread(self._run.directory.sync)
            self.saved = await asyncio.to_thread(checkpoint.finish, fresh, state, self._identity, self._keep)
        except Exception:  # as above
            await asyncio.to_thread(checkpoint.give_up, fresh)
            raise
        self._run.trace.span("write", "checkpoint", began, step=state.step)

    async def _write_beside(self, fresh: Path, whole: asyncio.Task[PipelineState]) -> None:
        state = await whole
        try:
            await self._write(fresh, state)
        except (ArealError, OSError) as error:
            self._none(state, str(error))

    async def _written(self) -> list[Any]:
        """What became of each rank's writing, once all have ended; that may take as long as any call of the trainer.

        After that the trainer is killed: it could never save again. The loss of a rank is the trainer's.
        """
        ranks, limit = self._trainer.ranks, self._trainer.timeout
        calls = [rank.call("written", timeout=limit) for rank in ranks]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        if any(isinstance(outcome, TimeoutError) for outcome in outcomes):
            self._trainer.kill(f"hung: a checkpoint was not written within {limit:g} s")
            return [WorkerLost(self._trainer.name, self._trainer.fault)]
        for rank, outcome in zip(ranks, outcomes, strict=True):
            if isinstance(outcome, WorkerLost):
                self._trainer.end(rank, outcome.reason)
        return outcomes

    def _none(self, state: PipelineState, cause: str) -> None:
        text = f"there is no checkpoint of step {state.step}: {cause}"
        self._run.events.add("no-checkpoint", text, of=state.step, cause=cause)
