"""How long groups take: when one has taken suspiciously long, and which workers take longer than the others."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from statistics import median, median_low

from areal_core.pipeline.pool import Seat

LEAST = 16
"""Groups of a size that must have come back before one can be late."""

RECENT = 64
"""Groups of a size whose median counts."""

SLOW = 2.0
"""A worker whose groups take so many times those of the others is slow."""

_GAIN = 0.1
_LARGEST = 10.0


class Pace:
    """The recent groups' seconds by their size (an evaluation's have one member), and each worker's relative to them.

    `factor` medians, but `floor` seconds at least, make a straggler; `factor` None: there are none.
    """

    def __init__(self, factor: float | None, floor: float) -> None:
        self._factor, self._floor = factor, floor
        self._recent: defaultdict[int, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._median: dict[int, float] = {}
        self._ratios: dict[str, dict[str, float]] = {}
        self._slow: set[str] = set()
        self._finished = 0

    def due(self, size: int) -> float | None:
        """The seconds after which a group of `size` members is late; None while nobody can tell."""
        if self._factor is None or size not in self._median:
            return None
        return max(self._floor, self._factor * self._median[size])

    def usual(self, size: int) -> float:
        """The median seconds of groups of `size` members, 0 while unknown."""
        return self._median.get(size, 0.0)

    def slow(self, seat: Seat | None) -> bool:
        """Whether whoever holds this seat takes longer than its peers."""
        return seat is not None and seat.name in self._slow

    def took(self, size: int, seconds: float) -> None:
        """A group came back."""
        recent = self._recent[size]
        recent.append(seconds)
        self._finished += 1
        if len(recent) >= LEAST and (size not in self._median or self._finished % 8 == 0):
            self._median[size] = median(recent)

    def worked(self, size: int, seconds: float, seats: Iterable[Seat]) -> list[tuple[Seat, float]]:
        """These workers spent so long on a group; which of them became slow by that, and how many times as slow."""
        usual = self._median.get(size)
        if self._factor is None or not usual:
            return []
        return [(seat, times) for seat in seats if (times := self._judge(seat, min(_LARGEST, seconds / usual)))]

    def _judge(self, seat: Seat, ratio: float) -> float:
        """How slow the worker has become, 0 unless it was not slow before."""
        peers = self._ratios.setdefault(seat.spec.role, {})
        before = peers.get(seat.name, 1.0)
        mine = peers[seat.name] = before + _GAIN * (ratio - before)
        # Its peers' is about 1, so that their median need not be looked for while its own is small.
        times = 0.0 if mine < SLOW else mine / max(1.0, median_low(peers.values()))
        if times < SLOW:
            self._slow.discard(seat.name)
            return 0.0
        known = seat.name in self._slow
        self._slow.add(seat.name)
        return 0.0 if known else times
