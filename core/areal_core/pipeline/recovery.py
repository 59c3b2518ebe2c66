"""What the run can get over by going back to a checkpoint, and how often: a lost trainer, a step that exploded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from attrs import frozen

from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.events import Events
from areal_core.pipeline.guard import Unstable
from areal_core.pipeline.metrics import Dropped
from areal_core.pipeline.supervise import Persistence
from areal_core.pipeline.weights import Weights
from areal_core.workers.group import WorkerGroup

LOST, RELOAD = "trainer-lost", "reload"
"""Why groups are dropped when the run goes back."""

OWN = frozenset({"train", "publish"})
"""Calls of the trainer after whose errors nobody knows what is left of it."""


@frozen
class Setback:
    """The run goes back, because of `reason`; `cause` is what it is called in counts, `wait` the seconds until then."""

    cause: str
    reason: str
    wait: float = 0.0


class Recovery:
    """Judges what ended the training. `mourn` is told of a lost trainer, by name and reason.

    Restarts are counted in a row, which a trainer that lived for `forgive_after` seconds ends; so are reloads,
    until there is another checkpoint than the one before. Of a trainer that raised both are asked: its error may
    come back at the same step for ever.
    """

    def __init__(
        self,
        trainer: WorkerGroup,
        weights: Weights,
        persistence: Persistence,
        events: Events,
        mourn: Callable[[str, str], None],
        max_reloads: int,
    ) -> None:
        self._trainer, self._weights, self._persistence = trainer, weights, persistence
        self._events, self._mourn = events, mourn
        self._max_reloads = max_reloads
        self._restarts = self._reloads = 0
        self._since = 0.0
        self._checkpoint: Path | None = None
        self._restarted: Path | None = None
        self._back: Setback | None = None
        self._steps, self._dropped = 0, Dropped()

    def went_back(self, setback: Setback, step: int, state: PipelineState, dropped: Dropped) -> None:
        """The run has been taken back from `step` to `state`, and so much was dropped."""
        text = f"from step {step} to step {state.step}: {setback.reason}"
        self._events.add("going-back", text, cause=setback.cause, step=state.step, incarnation=state.incarnation)
        self._back, self._steps = setback, self._steps + step - state.step
        self._dropped.join(dropped)

    @property
    def going_back(self) -> bool:
        """Whether a setback is not over."""
        return self._back is not None

    def began(self) -> None:
        """A trainer is there."""
        self._since = asyncio.get_running_loop().time()

    def over(self, step: int, incarnation: int) -> None:
        """All stands at `step` now; after a setback that is told."""
        if self._back is None:
            return
        kind = "reloaded" if self._back.cause == RELOAD else "trainer-restarted"
        text = f"goes on from step {step}: {self._steps} steps are lost, {self._dropped.groups} groups dropped"
        self._events.add(
            kind, f"the trainer {text}", reason=self._back.reason, step=step, steps=self._steps,
            groups=self._dropped.groups, trajectories=self._dropped.trajectories, units=self._dropped.units,
            incarnation=incarnation, restarts=self._restarts, reloads=self._reloads,
        )  # fmt: skip
        self._back, self._steps, self._dropped = None, 0, Dropped()

    def judge(self, cause: BaseException | None, checkpoint: Path | None) -> Setback | None:
        """How to go on after `cause`, from `checkpoint` on; None when nothing can be done about it.

        Raises:
            WorkerLost: the trainer was restarted often enough.
            Unstable: the run went back to this checkpoint often enough.

        """
        if isinstance(cause, Unstable):
            return self._reload(cause, checkpoint) if cause.then == "reload" else None
        if not isinstance(cause, RemoteError | WorkerLost):
            return None
        blamed, raised = self._blames_trainer(cause), isinstance(cause, RemoteError) and cause.method in OWN
        if cause is self._weights.broke:  # the trainer may wait in the exchange for ever
            self._trainer.kill(f"an exchange of weights broke off: {cause}")
        elif blamed and raised:
            self._trainer.kill(str(cause))
        if not self._trainer.broken or not blamed:
            return None
        return self._restart(cause, raised, checkpoint)

    def _restart(self, cause: Exception, raised: bool, checkpoint: Path | None) -> Setback:
        reason = self._trainer.fault
        self._mourn(self._trainer.name, reason)
        lived = asyncio.get_running_loop().time() - self._since >= self._persistence.forgive_after
        if lived and not (raised and checkpoint == self._restarted):
            self._restarts = 0
        if self._restarts >= self._persistence.max_restarts:
            raise WorkerLost(self._trainer.name, f"{reason}; it was restarted {self._restarts} times before") from cause
        self._restarts, self._restarted = self._restarts + 1, checkpoint
        return Setback(LOST, reason, self._persistence.wait(self._restarts))

    def _reload(self, cause: Unstable, checkpoint: Path | None) -> Setback:
        if checkpoint != self._checkpoint:
            self._reloads, self._checkpoint = 0, checkpoint
        if self._reloads >= self._max_reloads:
            problem = f"{cause.problem}; the run went back {self._reloads} times before, to the same checkpoint"
            raise Unstable(cause.step, problem, "stop")
        self._reloads += 1
        return Setback(RELOAD, str(cause))

    def _blames_trainer(self, cause: RemoteError | WorkerLost) -> bool:
        """Whether it is the trainer's loss, or what that did to the engines; not what was wrong from the beginning."""
        if isinstance(cause, RemoteError) and cause.error.exit_code == 2:
            return False
        ranks = {self._trainer.name, *(rank.name for rank in self._trainer.ranks)}
        return cause is self._weights.broke or cause.worker in ranks or _fetched(cause)


def _fetched(cause: RemoteError | WorkerLost) -> bool:
    return isinstance(cause, RemoteError) and cause.method in ("prepare", "commit")
