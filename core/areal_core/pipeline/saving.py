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
from areal_core.pipeline.run import Run
from areal_core.workers.group import WorkerGroup


class Saver:
    """Training waits for the trainer's copy of its state; that is written, checked and named beside it.

    `saved` is the newest checkpoint that is whole.
    """

    def __init__(
        self, run: Run, trainer: WorkerGroup, identity: Mapping[str, Any], keep: int, saved: Path | None
    ) -> None:
        self._run, self._trainer, self._identity, self._keep = run, trainer, identity, keep
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
        """Begin one, and return once the trainer may go on; one that is not written is an event, not the run's end."""
        if self._writing is not None and not self._writing.done():
            self._none(state, "the one before is still being written")
            return
        try:
            fresh = await self._copy(state)
        except (RemoteError, OSError) as error:
            self._none(state, str(error))
        else:
            self._writing = self._beside.spawn(self._write_beside(fresh, state))

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

    async def _write_beside(self, fresh: Path, state: PipelineState) -> None:
        try:
            await self._write(fresh, state)
        except (ArealError, OSError) as error:
            self._none(state, str(error))

    async def _written(self) -> list[Any]:
        """What became of each rank's writing, once all have ended. The loss of a rank is the trainer's."""
        ranks = self._trainer.ranks
        outcomes = await asyncio.gather(*(rank.call("written") for rank in ranks), return_exceptions=True)
        for rank, outcome in zip(ranks, outcomes, strict=True):
            if isinstance(outcome, WorkerLost):
                self._trainer.end(rank, outcome.reason)
        return outcomes

    def _none(self, state: PipelineState, cause: str) -> None:
        text = f"there is no checkpoint of step {state.step}: {cause}"
        self._run.events.add("no-checkpoint", text, of=state.step, cause=cause)
