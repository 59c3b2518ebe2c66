"""Plugins' observer hooks and the spec's trackers: told of the run in a thread of their own.

They cannot steer the run or hold it up. One that raises becomes an event, and is not called any
more once it has raised often; calls beyond the queue's limit are counted and reported, not waited for.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pluggy

from areal_core.contexts import RunInfo, RunSummary
from areal_core.data import TrajectoryGroup, WeightVersion
from areal_core.protocols import Tracker

TRIES = 10
"""Times an observer may raise before it is given up."""

LIMIT = 10_000
"""Calls that may wait."""

HELD = 256 << 20
"""Bytes of trajectories that calls may hold which wait; what comes beyond that is left out."""

Report = Callable[[str, str], None]
"""Called, in the observers' thread, with the name of the observer at fault and what is wrong."""

Call = Callable[[Mapping[str, Any]], None]

_TRACKED: dict[str, tuple[str, tuple[str, ...]]] = {
    "areal_step_finished": ("log", ("step", "metrics")),
    "evaluated": ("evaluation", ("step", "metrics")),
    "areal_trajectories_collected": ("group", ("group",)),
}
"""The tracker method that hears of each occasion, and what it is told."""


class Observers:
    """Everyone who is told. `inline` calls them at once instead, for a run in a fixed order."""

    def __init__(
        self,
        run: RunInfo,
        hooks: pluggy.PluginManager | None = None,
        trackers: Iterable[tuple[str, Tracker]] = (),
        report: Report = lambda name, problem: None,
        inline: bool = False,
        limit: int = LIMIT,
    ) -> None:
        self._run, self._report = run, report
        self._calls = _hook_calls(hooks) if hooks is not None else defaultdict(list)
        self._trackers = list(trackers)
        for name, tracker in self._trackers:
            for occasion, (method, arguments) in _TRACKED.items():
                self._calls[occasion].append((name, _bound(getattr(tracker, method), arguments)))
        self._raised: defaultdict[str, int] = defaultdict(int)
        self._lost = 0
        self._entered = self._left = 0  # bytes, each counted by one thread alone
        self._queue: queue.Queue[tuple[str, Mapping[str, Any]] | None] = queue.Queue(limit)
        self._thread = None if inline else threading.Thread(target=self._serve, name="observers", daemon=True)
        if self._thread is not None:
            self._thread.start()

    def started(self) -> None:
        """The run begins."""
        self._tell("areal_run_started")

    def collected(self, group: TrajectoryGroup) -> None:
        """A group enters the buffer."""
        self._tell("areal_trajectories_collected", group=group)

    def stepped(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is done."""
        self._tell("areal_step_finished", step=step, metrics=metrics)

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """An evaluation is done."""
        self._tell("evaluated", step=step, metrics=metrics)

    def published(self, version: WeightVersion) -> None:
        """All engines serve `version`."""
        self._tell("areal_weights_published", version=version)

    def failed(self, worker: str, reason: str) -> None:
        """A worker was lost."""
        self._tell("areal_worker_failed", worker=worker, reason=reason)

    def finished(self, summary: RunSummary) -> None:
        """The run ended."""
        self._tell("areal_run_finished", summary=summary)

    def close(self, timeout: float) -> None:
        """Let them hear what waits, for `timeout` seconds at most, then close the trackers. Blocks."""
        if self._thread is not None and not self._drain(self._thread, timeout):
            self._report("observers", f"still busy after {timeout:g} s: {self._queue.qsize()} calls are lost")
            return
        for name, tracker in self._trackers:
            self._guarded(name, "close", _bound(tracker.close, ()), {})

    def _drain(self, thread: threading.Thread, timeout: float) -> bool:
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
            thread.join(timeout)
        return not thread.is_alive()

    def _tell(self, occasion: str, **facts: Any) -> None:
        if occasion not in self._calls:
            return
        facts["run"] = self._run
        if self._thread is None:
            self._pass_on(occasion, facts)
        else:
            self._put((occasion, facts))

    def _put(self, item: tuple[str, Mapping[str, Any]]) -> None:
        try:
            if self._entered - self._left > HELD:
                raise queue.Full
            self._queue.put_nowait(item)
            self._entered += _held(item[1])
        except queue.Full:
            self._lost += 1
            if self._lost & (self._lost - 1) == 0:
                self._report("observers", f"too slow: {self._lost} calls were left out")

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            self._pass_on(*item)
            self._left += _held(item[1])

    def _pass_on(self, occasion: str, facts: Mapping[str, Any]) -> None:
        for name, call in self._calls[occasion]:
            self._guarded(name, occasion, call, facts)

    def _guarded(self, name: str, occasion: str, call: Call, facts: Mapping[str, Any]) -> None:
        """Make one call; whatever an observer raises is its own fault and stays there."""
        if self._raised[name] >= TRIES:
            return
        try:
            call(facts)
        except Exception as error:
            self._raised[name] += 1
            given_up = "; it is not called any more" if self._raised[name] == TRIES else ""
            self._report(name, f"{occasion}: {type(error).__name__}: {error}{given_up}")


def _hook_calls(hooks: pluggy.PluginManager) -> defaultdict[str, list[tuple[str, Call]]]:
    """Each implementation by itself: pluggy would stop at the first that raises, and not name it."""
    calls: defaultdict[str, list[tuple[str, Call]]] = defaultdict(list)
    for occasion, caller in vars(hooks.hook).items():
        if isinstance(caller, pluggy.HookCaller):
            for found in reversed(caller.get_hookimpls()):
                calls[occasion].append((found.plugin_name, _bound(found.function, found.argnames)))
    return calls


def _held(facts: Mapping[str, Any]) -> int:
    """Bytes of the columns of a call's group, if it tells of one."""
    group: TrajectoryGroup | tuple[()] = facts.get("group", ())
    return sum(column.nbytes for trajectory in group for column in trajectory.columns.values())


def _bound(function: Callable[..., Any], arguments: Iterable[str]) -> Call:
    names = tuple(arguments)
    return lambda facts: function(*(facts[name] for name in names))
