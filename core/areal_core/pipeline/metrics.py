"""The figures of a step: what was in its batch, what was dropped meanwhile, and alarms on both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
from attrs import asdict, define, evolve, field, frozen

from areal_core.data import NO_VERSION, Batch, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.pipeline.events import Events, Level

MISMATCH_ALARM = 0.1
"""Mean |trainer - engine| log-probability of the same tokens under one version; rounding stays far below it."""

LAG_ALARM = 0.9
"""Mean lag, as a share of the staleness allowed, above which generation runs needlessly far ahead."""

_SMOOTHING = 10.0


@define
class Totals:
    """Units drawn and trained on since the run began, and how often it went back to a checkpoint and why."""

    generated: int = 0
    trained: int = 0
    restarts: int = 0
    reloads: int = 0

    @property
    def utilization(self) -> float:
        """Sample utilization: trained over generated, of what has been either trained on or given up."""
        return self.trained / self.generated if self.generated else 1.0

    @property
    def setbacks(self) -> dict[str, float]:
        """As figures; nothing of a run that had none."""
        counts = {"restarts": float(self.restarts), "reloads": float(self.reloads)}
        return {name: count for name, count in counts.items() if count}


@define
class Dropped:
    """Groups given up for one cause since the last step. `units` and `longest` are of those that were finished."""

    groups: int = 0
    trajectories: int = 0
    units: int = 0
    longest: int = 0

    def add(self, group: TrajectoryGroup | None, members: int) -> None:
        """One more; `group` None when it was not finished."""
        self.groups += 1
        self.trajectories += members
        lengths = [trajectory.trained_units for trajectory in group] if group else [0]
        self.units += sum(lengths)
        self.longest = max(self.longest, *lengths)

    def join(self, other: Dropped) -> None:
        """All of `other` as well."""
        self.groups += other.groups
        self.trajectories += other.trajectories
        self.units += other.units
        self.longest = max(self.longest, other.longest)

    def leave(self, other: Dropped) -> None:
        """Not `other`, which was joined before."""
        self.groups -= other.groups
        self.trajectories -= other.trajectories
        self.units -= other.units


@define
class Tally:
    """What the pipeline counts between two steps, and over the run; a checkpoint holds it."""

    totals: Totals = field(factory=Totals)
    dropped: dict[str, Dropped] = field(factory=dict)

    def copy(self) -> Tally:
        """As it is now."""
        return Tally(evolve(self.totals), {cause: evolve(dropped) for cause, dropped in self.dropped.items()})

    def rewind(self, before: Tally, cause: str, *, told: bool) -> Dropped:
        """Count as in the state `before`, and what is given up for that as dropped for `cause`; so much it is.

        What was drawn since stays drawn. `told`: the drops of `before` were told of in a step that is forgotten;
        otherwise they are still among those here.
        """
        lost = Dropped()
        for dropped in self.dropped.values():
            lost.join(dropped)
        for dropped in () if told else before.dropped.values():
            lost.leave(dropped)
        self.dropped = before.copy().dropped
        if lost.groups:
            self.dropped.setdefault(cause, Dropped()).join(lost)
        self.totals.generated = max(self.totals.generated, before.totals.generated)
        self.totals.trained = before.totals.trained
        return lost

    def collected(self, group: TrajectoryGroup) -> None:
        """A group came back from its rollout."""
        self.totals.generated += sum(trajectory.trained_units for trajectory in group)

    def drop(self, cause: str, members: int, group: TrajectoryGroup | None = None) -> None:
        """A group will not be trained on."""
        self.dropped.setdefault(cause, Dropped()).add(group, members)

    def flush(self, events: Events) -> dict[str, float]:
        """The drops since the last call as figures, each cause an event, and forgotten."""
        figures = {f"dropped/{cause}": float(dropped.trajectories) for cause, dropped in self.dropped.items()}
        for cause, dropped in self.dropped.items():
            text = f"{dropped.groups} groups dropped: {cause} ({dropped.units} tokens, longest {dropped.longest})"
            events.add("dropped", text, "info", cause=cause, **asdict(dropped))
        self.dropped.clear()
        return figures


def batch_metrics(batch: Batch) -> dict[str, float]:
    """Rewards in all and by environment, lag and length of what the batch trains on."""
    trajectories = batch.trajectories
    lengths = np.array([trajectory.trained_units for trajectory in trajectories], dtype=np.int64)
    figures = {
        "reward": _mean(trajectory.reward for trajectory in trajectories),
        **_rewards_by_environment(batch),
        **_lags(batch.step, trajectories),
        "length/mean": float(lengths.mean()),
        "length/max": float(lengths.max()),
        "truncated": _mean(trajectory.finish == "length" for trajectory in trajectories),
    }
    return figures | {f"score/{name}": value for name, value in score_parts(trajectories).items()}


def _rewards_by_environment(batch: Batch) -> dict[str, float]:
    rewards: defaultdict[str, list[float]] = defaultdict(list)
    for group in batch.groups:
        rewards[group.task.environment].extend(trajectory.reward for trajectory in group)
    return {f"reward/{name}": _mean(values) for name, values in sorted(rewards.items())}


def _lags(step: int, trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """Mean over the drawn units, and the largest, of the batch's step less the version's."""
    chosen = list(trajectories)
    versions = np.concatenate([trajectory.columns["versions"] for trajectory in chosen])
    learned = np.concatenate([trajectory.columns["mask"] for trajectory in chosen]) != 0
    drawn = versions[learned & (versions != NO_VERSION)]
    if not drawn.size:
        return {"lag/mean": 0.0, "lag/max": 0.0}
    lags = step - WeightVersion.steps_of(drawn)
    return {"lag/mean": float(lags.sum() / lags.size), "lag/max": float(lags.max())}


def score_parts(trajectories: Iterable[Trajectory]) -> dict[str, float]:
    """The means of the rewards' named parts, each over the trajectories that have it."""
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        for name, value in trajectory.scores.items():
            parts[name].append(value)
    return {name: _mean(values) for name, values in sorted(parts.items())}


def _mean(values: Iterable[float]) -> float:
    """Summed in order, so that it is the same on every machine."""
    listed = [float(value) for value in values]
    return sum(listed) / len(listed)


def note(metrics: Mapping[str, float], events: Events) -> None:
    """What a step did that somebody may ask about later."""
    if metrics.get("clipped"):
        norm = metrics.get("grad_norm", float("nan"))
        events.add("clipped", f"the gradient, of norm {norm:.4g}, was clipped", "info", grad_norm=norm)


@frozen
class Watch:
    """A figure's running mean, None before its first value, and whether its alarm is raised."""

    mean: float | None = None
    raised: bool = False


class Alarm:
    """An event when a figure's running mean rises above its limit; not again before it has fallen well below."""

    def __init__(self, events: Events, name: str, limit: float, text: str, level: Level) -> None:
        self._events, self._limit, self._text, self._level = events, limit, text, level
        self.name = name
        self.state = Watch()

    def watch(self, metrics: Mapping[str, float]) -> None:
        """Look at one step's figures."""
        value = metrics.get(self.name)
        if value is None:
            return
        before = self.state
        mean = value if before.mean is None else before.mean + (value - before.mean) / _SMOOTHING
        raised = mean > self._limit or (before.raised and mean >= self._limit / 2)
        self.state = Watch(mean, raised)
        if raised and not before.raised:
            text = f"{self.name} is {mean:.3g} lately, above {self._limit:.3g}: {self._text}"
            self._events.add("alarm", text, self._level, figure=self.name, value=mean, limit=self._limit)


def alarms(events: Events, max_staleness: int, before: Mapping[str, Watch]) -> list[Alarm]:
    """What watches every step of a stage; `before` are the states of those that watched already."""
    disagree = "the engine and the trainer disagree about the same tokens under the same weights"
    found = [Alarm(events, "mismatch", MISMATCH_ALARM, disagree, "warning")]
    if max_staleness:
        ahead = "generation runs as far ahead as it may, and a smaller max_staleness would be as fast"
        found.append(Alarm(events, "lag/mean", LAG_ALARM * max_staleness, ahead, "info"))
    for alarm in found:
        alarm.state = before.get(alarm.name, alarm.state)
    return found
