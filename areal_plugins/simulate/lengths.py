"""How long answers are, and how long their judging takes: given, or measured in a run directory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, TypeVar

from attrs import field, frozen

from areal_core.errors import InputError
from areal_core.pipeline.lines import read

T = TypeVar("T")

FORMS = "fixed:N, uniform:LOW,HIGH, log-uniform:LOW,HIGH or lognormal:MEAN,SIGMA[,MAX]"

_NORMAL = NormalDist()
_KEPT = 1024
"""Quantiles, and groups, that are kept of what was measured."""


@frozen
class Lengths:
    """A distribution of numbers above 0.

    `fixed` is `low`; `uniform` and `log-uniform` lie between `low` and `high`; `lognormal` has the mean `low`
    before it is cut at `high`, and `sigma` of its logarithm; `measured` interpolates between `quantiles`.

    Numbers of one group are alike: a normal variable with a part of the group and one of each member, of which the
    first has the share `alike` of the variance, gives the quantile (a Gaussian copula), so that single numbers are
    distributed as ever. Of a `lognormal` it is the logarithm that has two parts. What was measured comes in `groups`.
    """

    kind: Literal["fixed", "uniform", "log-uniform", "lognormal", "measured"] = field(
        default="fixed", metadata={"doc": "How it is drawn."}
    )
    low: float = field(default=0.0, metadata={"doc": "Least, or mean, or the number itself.", "ge": 0})
    high: float | None = field(default=None, metadata={"doc": "Most.", "ge": 0})
    sigma: float = field(default=1.0, metadata={"doc": "Spread of the logarithm.", "ge": 0})
    quantiles: tuple[float, ...] = field(default=(), metadata={"doc": "Evenly spaced quantiles, ascending."})
    alike: float = field(default=0.0, metadata={"doc": "Share of the variance between groups.", "ge": 0, "le": 1})
    groups: tuple[tuple[float, ...], ...] = field(default=(), metadata={"doc": "Whole groups as they were measured."})

    def group(self, size: int, point: Callable[[], float]) -> list[float]:
        """Numbers for the `size` members of one group; `point` draws evenly from 0 up to but not including 1."""
        if self.groups:
            group = self.groups[int(point() * len(self.groups))]
            first = int(point() * len(group))
            return [group[(first + member) % len(group)] for member in range(size)]
        if not self.alike:
            return [self.at(point()) for _ in range(size)]
        common = math.sqrt(self.alike) * _normal(point())
        own = math.sqrt(1 - self.alike)
        return [self.at(min(_NORMAL.cdf(common + own * _normal(point())), _BELOW_1)) for _ in range(size)]

    def at(self, point: float) -> float:
        """The quantile `point`, from 0 up to but not including 1."""
        if self.kind == "uniform" and self.high is not None:
            return self.low + (self.high - self.low) * point
        if self.kind == "log-uniform" and self.high is not None:
            return float(self.low * (self.high / self.low) ** point)
        if self.kind == "lognormal":
            return self._lognormal(point)
        if self.kind == "measured":
            return self._between(point)
        return self.low

    def above(self, longest: int) -> float:
        """The share of numbers above `longest`."""
        return sum(self.at((i + 0.5) / _KEPT) > longest for i in range(_KEPT)) / _KEPT

    def _lognormal(self, point: float) -> float:
        drawn = math.exp(math.log(self.low) - self.sigma**2 / 2 + self.sigma * _normal(point))
        return drawn if self.high is None else min(drawn, self.high)

    def _between(self, point: float) -> float:
        place = point * (len(self.quantiles) - 1)
        below = int(place)
        above = min(below + 1, len(self.quantiles) - 1)
        return self.quantiles[below] + (self.quantiles[above] - self.quantiles[below]) * (place - below)


def _normal(point: float) -> float:
    return _NORMAL.inv_cdf(max(point, 1e-12))


_BELOW_1 = math.nextafter(1.0, 0.0)


_NAMES = {
    "fixed": ("N",),
    "uniform": ("LOW", "HIGH"),
    "log-uniform": ("LOW", "HIGH"),
    "lognormal": ("MEAN", "SIGMA", "MAX"),
}
_MOST, _LEAST = 1e12, 1e-9
"""What numbers may be at most, and those whose logarithm is needed at least."""


def parse(text: str, what: str, of: str = "") -> Lengths:
    """`KIND:NUMBER[,NUMBER]...` as an option of the command line; `what` is the option.

    Of tokens `of` something each has one at least; other numbers may be 0.

    Raises:
        InputError: it is none of `FORMS`, or its numbers cannot be.

    """
    kind, _, rest = text.partition(":")
    try:
        return _made(kind, rest.split(","), of)
    except ValueError as error:
        raise InputError(what, f"cannot read {text!r}: {error}", f"it is {FORMS}") from None


def _made(kind: str, texts: Sequence[str], of: str) -> Lengths:
    if kind not in _NAMES:
        raise ValueError("there is no such distribution")
    names = _NAMES[kind]
    if len(texts) not in ((2, 3) if kind == "lognormal" else (len(names),)):
        wanted = {"fixed": "1 number", "lognormal": "2 or 3 numbers"}.get(kind, "2 numbers")
        raise ValueError(f"{kind} takes {wanted}, not {len(texts)}")
    given = {name: _number(name, text) for name, text in zip(names, texts, strict=False)}
    for name, number in given.items():
        if of and name != "SIGMA" and number < 1:
            raise ValueError(f"{of} has at least one token")
    first = given[names[0]]
    if kind.startswith("log") and first < _LEAST:
        raise ValueError(f"{names[0]} must be at least {_LEAST:g}")
    if given.get("HIGH", first) < first:
        raise ValueError("HIGH must not be below LOW")
    high = given.get("HIGH", given.get("MAX"))
    return Lengths(kind, first, high, given.get("SIGMA", 1.0))  # type: ignore[arg-type]  # it is one of the kinds


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{name} is no number: {text!r}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite")
    if number < 0:
        raise ValueError(f"{name} must not be negative")
    if number > _MOST:
        raise ValueError(f"{name} must be at most {_MOST:g}")
    return number


def tokens(number: float, longest: int | None = None) -> int:
    """A drawn number as a count of tokens: whole, one at least, cut at `longest`."""
    count = max(1, round(number))
    return count if longest is None else min(longest, count)


def measured(run: Path) -> Lengths:
    """Of the answers that the last stage of the run in the directory `run` was trained on, in their groups.

    A group of one says nothing of how alike answers are: where there are no others, answers are independent.

    Raises:
        InputError: it holds no trajectories, or a damaged line.

    """
    groups = sorted(_in_run(run), key=sum)
    found = sorted(length for group in groups for length in group)
    if not found:
        raise InputError(str(run), "holds no trajectories", "give the directory of a run that has trained")
    several = [group for group in groups if len(group) > 1]
    return Lengths("measured", quantiles=tuple(_spread(found)), groups=tuple(_spread(several)))


def _in_run(run: Path) -> Iterator[tuple[float, ...]]:
    """Lengths by group, from the lines that the pipeline writes; a tracker has files of its own beside them."""
    steps = _last_stage(run)
    for file in sorted((run / "trajectories").glob("steps-*.jsonl")):
        for step, lengths in read(file, _group):
            if step in steps:
                yield lengths


def _group(line: Mapping[str, Any]) -> tuple[int, tuple[float, ...]]:
    return line["step"], tuple(float(trajectory["length"]) for trajectory in line["trajectories"])


def _last_stage(run: Path) -> set[int]:
    """Steps of the last stage that has trained."""
    file = run / "timings.jsonl"
    stages = list(read(file, lambda line: (line["step"], line["stage"]))) if file.exists() else []
    return {step for step, stage in stages if stage == stages[-1][1]}


def _spread(found: Sequence[T]) -> Sequence[T]:
    """At most `_KEPT` of them, evenly spaced."""
    if len(found) <= _KEPT:
        return found
    return [found[round(i * (len(found) - 1) / (_KEPT - 1))] for i in range(_KEPT)]
