"""The options of the mocks, and the two words that all of them know: a `Latency`, and a `Fault`. Light."""

from __future__ import annotations

from typing import Any, Literal

from attrs import Attribute, field, frozen

Distribution = Literal["fixed", "uniform", "log-uniform", "heavy-tail"]
"""How numbers between a least and a most are spread; a heavy tail is Pareto's, cut at the most."""

_NUMBER = {"doc": "Of anything but `fixed` and `heavy-tail`: the longest; a heavy tail is cut there.", "ge": 0}


def quantile(distribution: Distribution, point: float, least: float, most: float | None, exponent: float) -> float:
    """The number below which the share `point` (0 up to, not including, 1) of the distribution lies.

    Pareto: `least (1 - point) ** (-1 / exponent)`, at most `most`; its mean is infinite for exponents up to 1.
    """
    if distribution == "uniform" and most is not None:
        return least + (most - least) * point
    if distribution == "log-uniform" and most is not None:
        return float(least * (most / least) ** point)
    if distribution == "heavy-tail":
        drawn = float(least * (1 - point) ** (-1 / exponent))
        return drawn if most is None else min(drawn, most)
    return least


def _possible(latency: Latency, _field: Attribute[Any], most: float | None) -> None:
    """Raise `ValueError` for bounds that the distribution cannot have."""
    kind, least = latency.distribution, latency.least
    if kind in ("uniform", "log-uniform") and most is None:
        raise ValueError(f"a {kind} latency needs `most`, the longest time")
    if kind in ("log-uniform", "heavy-tail") and least <= 0:
        raise ValueError(f"a {kind} latency needs a `least` time above 0")
    if kind != "fixed" and most is not None and most < least:
        raise ValueError(f"`most` is {most:g}, which is less than `least`, {least:g}")


@frozen
class Latency:
    """A time in seconds on the loop's clock: `least` alone where it is fixed, else drawn."""

    distribution: Distribution = field(default="fixed", metadata={"doc": "How it is drawn."})
    least: float = field(default=0.0, metadata={"doc": "The time where it is fixed, else the shortest.", "ge": 0})
    exponent: float = field(default=1.5, metadata={"doc": "Of a heavy tail; the smaller, the heavier.", "gt": 0})
    most: float | None = field(default=None, metadata=_NUMBER, validator=_possible)

    def at(self, point: float) -> float:
        """The time at the quantile `point`."""
        return quantile(self.distribution, point, self.least, self.most, self.exponent)


@frozen
class Fault:
    """What goes wrong at the n-th call of a method.

    `raise`: it raises; `hang`: it never answers; `late`: it answers `seconds` later; `twice`: it answers
    twice. A method that is no coroutine cannot hang, and only a stream can answer twice.
    """

    method: str = field(metadata={"doc": "The method whose call goes wrong."})
    kind: Literal["raise", "hang", "late", "twice"] = field(default="raise", metadata={"doc": "How it goes wrong."})
    call: int = field(default=1, metadata={"doc": "Which call goes wrong, the first is 1.", "ge": 1})
    times: int | None = field(default=1, metadata={"doc": "How many calls in a row; null is all that follow.", "ge": 1})
    seconds: float = field(default=60.0, metadata={"doc": "How late a `late` answer is.", "ge": 0})

    def strikes(self, method: str, call: int) -> bool:
        """Whether it is this call that goes wrong."""
        return method == self.method and self.call <= call and (self.times is None or call < self.call + self.times)


@frozen(kw_only=True)
class Script:
    """What every mock can be told: how long its methods take, and which calls go wrong."""

    latency: dict[str, float | Latency] = field(
        factory=dict, metadata={"doc": "Seconds that methods take, each a number or a distribution."}
    )
    faults: tuple[Fault, ...] = field(default=(), metadata={"doc": "Calls that go wrong."})
    draws: int = field(default=0, metadata={"doc": "Seed of the drawn latencies.", "ge": 0})


@frozen(kw_only=True)
class PlatformOptions(Script):
    """How much there is of nothing."""

    devices: int = field(default=64, metadata={"doc": "Devices that are said to be present.", "ge": 0})


@frozen(kw_only=True)
class EngineOptions(Script):
    """An answer beyond the request's limit is cut there."""

    shortest: int = field(default=1, metadata={"doc": "Fewest tokens of an answer.", "ge": 1})
    longest: int = field(default=10, metadata={"doc": "Most tokens of an answer.", "ge": 1})
    lengths: Distribution = field(default="log-uniform", metadata={"doc": "How lengths are drawn."})
    exponent: float = field(default=1.5, metadata={"doc": "Of lengths with a heavy tail.", "gt": 0})
    token_seconds: float = field(default=0.0, metadata={"doc": "Time a token takes.", "ge": 0})
    stale: bool = field(default=False, metadata={"doc": "Break the contract: keep the first weights for ever."})


@frozen(kw_only=True)
class TrainerOptions(Script):
    """What it does besides counting."""

    exploding: tuple[int, ...] = field(
        default=(), metadata={"doc": "Calls of `train`, the first is 1, whose gradient has the norm 1000 instead of 1."}
    )
    nonfinite: tuple[int, ...] = field(
        default=(), metadata={"doc": "Calls of `train`, the first is 1, whose loss is not finite."}
    )
    optimizes: bool = field(
        default=False, metadata={"doc": "Let the stage's optimizer step one torch parameter, too; needs torch."}
    )


@frozen(kw_only=True)
class ParallelismOptions(Script):
    """Which sizes a model divides by."""

    heads: str = field(default="num_attention_heads", metadata={"doc": "The size that must divide."})


@frozen(kw_only=True)
class EnvironmentOptions(Script):
    """Tasks are their own index; every rollout is one turn."""

    size: int | None = field(default=None, metadata={"doc": "Tasks to train on; null is no end.", "ge": 0})
    test_size: int = field(default=16, metadata={"doc": "Held-out tasks.", "ge": 0})
    failing: tuple[int, ...] = field(default=(), metadata={"doc": "Tasks whose rollout always raises."})
    demonstrates: bool = field(default=True, metadata={"doc": "Whether tasks come with a demonstration."})


@frozen(kw_only=True)
class RewardOptions(Script):
    """A verdict is the share of `target` steps that the answering weights were trained for."""

    target: int = field(default=100, metadata={"doc": "Steps after which an answer is right.", "ge": 1})
    drawn: bool = field(default=False, metadata={"doc": "Right or wrong, at odds that rise from 1/4 to 3/4."})


@frozen(kw_only=True)
class ObjectiveOptions(Script):
    """Which groups are trained on."""

    least_spread: float = field(default=0.0, metadata={"doc": "Keep groups whose rewards differ by as much.", "ge": 0})
