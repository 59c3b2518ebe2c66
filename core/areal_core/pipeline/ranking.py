"""Who is lightest among thousands, without looking at all of them."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Generic, Protocol, TypeVar


class Loaded(Protocol):
    """What can be ranked: by its load, once it is ready."""

    ready: bool
    load: int


L = TypeVar("L", bound=Loaded)


class Ranking(Generic[L]):
    """The first of the lightest that are ready, in the order in which they joined.

    A heap of loads as they were when an entry was made. Growing loads are found out when an entry comes
    up; whoever's load falls must be told of by `lighter`. Those that are not ready are kept aside, and
    looked at every time. Entries that are out of date go when they come up, and all at once when they are the most.
    """

    def __init__(self, members: Iterable[L]) -> None:
        self._heap: list[tuple[int, int]] = []
        self._members: dict[int, L] = {}
        self._places: dict[int, int] = {}
        self._listed: dict[int, int] = {}
        self._aside: list[int] = []
        self._next = count()
        for member in members:
            self.add(member)

    def add(self, member: L) -> None:
        """One more, after all others."""
        place = next(self._next)
        self._members[place], self._places[id(member)] = member, place
        self._list(place)

    def remove(self, member: L) -> None:
        """It is not asked any more."""
        place = self._places.pop(id(member))
        del self._members[place]
        self._listed.pop(place, None)
        self._aside = [other for other in self._aside if other != place]

    def lighter(self, member: L) -> None:
        """Its load has fallen."""
        place = self._places.get(id(member))
        if place is not None and place in self._listed:
            self._list(place)

    def first(self) -> L:
        """The lightest; raises `ValueError` when none is ready."""
        for place in [place for place in self._aside if self._members[place].ready]:
            self._aside.remove(place)
            self._list(place)
        while self._heap:
            load, place = self._heap[0]
            if self._listed.get(place) != load:
                heappop(self._heap)  # made before a later entry of the same member, or of one that has left
                continue
            member = self._members[place]
            if not member.ready:
                heappop(self._heap)
                del self._listed[place]
                self._aside.append(place)
            elif member.load != load:
                heapreplace(self._heap, (member.load, place))
                self._listed[place] = member.load
            else:
                return member
        raise ValueError("none is ready")

    def _list(self, place: int) -> None:
        load = self._members[place].load
        if self._listed.get(place) != load:
            self._listed[place] = load
            heappush(self._heap, (load, place))
            if len(self._heap) > 2 * len(self._members):
                self._heap = [(load, place) for place, load in self._listed.items()]
                heapify(self._heap)
