"""What was done to the workers in one life of the controller, and what a run may fail of after that."""

from __future__ import annotations

from collections import Counter

from areal_core.errors import RemoteError, RunFailed, WorkerLost
from areal_core.pipeline.dispatch import WINDOW, TooManyFailed
from areal_core.pipeline.events import Event
from areal_core.pipeline.health import manner
from areal_core.pipeline.weights import PREPARE_TRIES
from areal_plugins.testing.sim.schedule import Schedule

HARMLESS = frozenset({"run_group", "generate", "partial", "health", "stats", "size", "discard", "release"})
"""Calls that may raise without any harm to the worker."""

LAST = frozenset({"save_model", "save_state", "written"})
"""Calls that may fail everywhere but after the last step."""

TOLD = "told to fail"
"""What a mock says that its part of the spec has raise."""

REASONS = ("injected: ", TOLD, " twice, ", "not done after", "worker ")
"""What errors of groups that fail say: a fault, a time-out, or the loss of workers, which is looked at by itself."""


class Injuries:
    """Counts them by worker; the trainer's ranks are one worker. A worker may be lost once after each, or several."""

    def __init__(self, schedule: Schedule) -> None:
        supervision = schedule.spec["supervision"]
        self._debug, self._calm = schedule.debug, schedule.calm
        self._restarts: int = supervision.get("max_restarts", 3)
        self._share: float = supervision.get("max_failed_share", 0.2)
        self._failed = 0
        self.heal()

    def heal(self) -> None:
        """A life begins: all workers are new."""
        self._open: Counter[str] = Counter()
        self._ever: Counter[str] = Counter()
        self._losses: Counter[str] = Counter()
        self._joining: set[str] = set()
        self._fetches: Counter[str] = Counter()
        self._everyone = False
        self.disk = False

    def add(self, worker: str, method: str = "", joining: bool = False) -> None:
        """A worker was hurt, by the failure of `method` if there is one; `joining`: it did not serve yet."""
        name = _group(worker)
        self._ever[name] += 1
        if method not in HARMLESS:
            self._open[name] += 1
        if method == "prepare":
            self._fetches[name] += 1
        if joining:
            self._joining.add(name)

    def jumped(self) -> None:
        """The clock has jumped: whoever was waited for may be taken for hung."""
        self._everyone = True

    def judge(self, event: Event) -> str:
        """What is wrong with an event that tells of a loss or of a failure: there was no reason for it."""
        match event.kind:
            case "worker-lost":
                return self._lost(event.data["worker"], event.data["reason"])
            case "group-failed":
                self._failed += 1
                error = event.data["error"]
                return "" if any(reason in error for reason in REASONS) else f"a group fails without a reason: {error}"
        return ""

    def _lost(self, worker: str, reason: str) -> str:
        self._losses[worker] += 1
        late = reason.rpartition(f"worker {worker}: ")[2]  # the newest of what was wrong with it, one after the other
        if self._open.pop(worker, 0) or (self._everyone and manner(late) == "hung"):
            return ""
        return f"{worker} is lost, and nothing was done to it: {reason}"

    def excuse(self, failure: RunFailed, started: bool, last: bool, alone: bool) -> bool:
        """Whether a run may fail of this. `started`: its workers served; `last`: no step was left to do; `alone`: a
        worker that was lost, or raised, had no peers."""
        cause = None if self._calm else failure.__cause__
        match cause:
            case WorkerLost() if not self._served(cause.worker, started):
                return bool(self._ever[_group(cause.worker)])
            case WorkerLost():
                return alone and self._losses[_group(cause.worker)] > self._restarts
            case TooManyFailed():
                return self._share * WINDOW < cause.failed <= self._failed
            case RemoteError():
                return self._raised(cause, started, last, alone)
            case OSError():
                return self.disk and last and "injected" in str(cause)
        return False

    def _raised(self, error: RemoteError, started: bool, last: bool, alone: bool) -> bool:
        name, method = _group(error.worker), error.method
        if "No space left" in str(error):  # beside the training, a checkpoint that cannot be written is no failure
            return self.disk and (not self._served(name, started) or (method in LAST and last))
        if f"injected: {method} " not in str(error) and TOLD not in str(error):
            return False
        if not self._served(name, started):
            return True
        return (method in LAST and last) or (method == "prepare" and alone and self._fetches[name] >= PREPARE_TRIES)

    def _served(self, name: str, started: bool) -> bool:
        """Whether a worker had begun to serve; a debug run brings up new ones after each checkpoint."""
        return started and not (self._debug and _group(name) in self._joining)


def _group(worker: str) -> str:
    """The trainer for each of its ranks."""
    return "trainer" if worker.startswith("trainer") else worker
