"""Steps that explode: the largest gradient that the next one may apply, and what is done about one that was not."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from attrs import frozen

from areal_core.errors import ArealError
from areal_core.pipeline.events import Events
from areal_core.spec.model import GradGuardSpec, TrainingSpec


@frozen
class Rules:
    """What a step does whose loss or gradient is not finite, and what is a gradient that is too large; see `training`.

    Under a dynamic loss scale gradients overflow now and then: such a step is skipped, whatever else is asked for.
    """

    nonfinite: str
    gradient: GradGuardSpec

    @classmethod
    def of(cls, training: TrainingSpec) -> Rules:
        """As the spec says."""
        amp = training.amp
        scaled = amp.enabled and amp.dtype == "fp16" and amp.loss_scale == "dynamic"
        return cls("skip" if scaled else training.on_nonfinite, training.grad_guard)


class Unstable(ArealError):
    """A step changed no weight, because of `problem`, and the run is to go back or to stop: `then`."""

    def __init__(self, step: int, problem: str, then: str) -> None:
        super().__init__(step, problem, then)
        self.step, self.problem, self.then = step, problem, then

    def __str__(self) -> str:
        return f"step {self.step} changed no weight: {self.problem}"


class Guard:
    """Knows the gradients' recent norms. Trainers only obey `limit`, so that what it is made of is the same for all.

    The norms of steps over the limit count as well: if gradients stay that large, the limit follows.
    """

    def __init__(self, rules: Rules, events: Events, norms: Iterable[float] = ()) -> None:
        self._rules, self._events = rules, events
        self._norms = deque(norms, maxlen=rules.gradient.window)

    @property
    def norms(self) -> tuple[float, ...]:
        """What a checkpoint keeps of it."""
        return tuple(self._norms)

    @property
    def limit(self) -> float | None:
        """The largest norm that the next step may apply; None: any. Medians count once half a window is known."""
        rule = self._rules.gradient
        limits = [] if rule.norm is None else [rule.norm]
        if rule.ratio is not None and 2 * len(self._norms) >= rule.window:
            limits.append(rule.ratio * median(self._norms))
        return min(limits, default=None)

    def watch(self, step: int, limit: float | None, metrics: Mapping[str, float]) -> None:
        """Look at the figures of a step that was trained under `limit`.

        Raises:
            Unstable: it was not applied, and more is to be done about that.

        """
        norm = metrics.get("grad_norm", 0.0)
        if norm > 0:  # 0 where nothing was learnt, which is no measure of anything
            self._norms.append(norm)
        if not metrics.get("skipped"):
            return
        exploded = bool(metrics.get("exploded"))
        problem = f"its gradient's norm, {norm:.4g}, is over {limit:.4g}" if exploded else "it is not finite"
        then = self._rules.gradient.then if exploded else self._rules.nonfinite
        error = Unstable(step, problem, then)
        self._events.add("skipped", str(error), problem=problem, then=then, exploded=exploded, grad_norm=norm)
        if then != "skip":
            raise error
