"""Which task is next: a pure function of the seed and a few counters, so that a resume goes on exactly."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate

from attrs import field, frozen

from areal_core.data import TaskRef
from areal_core.errors import InputError
from areal_core.workers.seeds import derive

# Streams below the run's seed: draws of environments, orders of epochs, held-out tasks, rollouts.
_ENVIRONMENTS, _EPOCHS, _HELD_OUT, _ROLLOUTS = range(4)
_SPAN = float(1 << 63)
_ROUNDS = 4


@frozen
class Source:
    """An environment as the sampler sees it: `size` tasks (None: no end), drawn with `weight`."""

    name: str
    weight: float
    size: int | None


@frozen
class Drawn:
    """How far the drawing has come: groups in all, and tasks of each environment."""

    groups: int = 0
    tasks: Mapping[str, int] = field(factory=dict)


class Permutation:
    """A permutation of `range(size)` that costs nothing to make and little to ask, whatever the size.

    A Feistel network over the next power of four, walked until it falls inside the range
    (Black and Rogaway, 2002): on average under four turns.
    """

    def __init__(self, size: int, key: int) -> None:
        self._size, self._key = size, key
        self._half = max(1, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1

    def __call__(self, index: int) -> int:
        """Where `index` goes."""
        index = self._scramble(index)
        while index >= self._size:
            index = self._scramble(index)
        return index

    def _scramble(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for turn in range(_ROUNDS):
            left, right = right, left ^ (derive(self._key, turn, right) & self._mask)
        return left << self._half | right


class TaskSampler:
    """Draws environments by weight, and each environment's tasks in a fresh order every epoch."""

    def __init__(self, seed: int, sources: Sequence[Source], split: str = "train", drawn: Drawn | None = None) -> None:
        self._seed, self._split = seed, split
        self._sources = [source for source in sources if source.weight > 0]
        for source in self._sources:
            if source.size == 0:
                raise InputError(f"environment {source.name}", f"has no tasks in its split {split!r}")
        if not self._sources:
            raise InputError("environments", "none has a weight above 0", "give one of them a `weight`")
        total = sum(source.weight for source in self._sources)
        self._bounds = [share / total for share in accumulate(s.weight for s in self._sources)]
        self._drawn = drawn or Drawn()

    @property
    def drawn(self) -> Drawn:
        """The counters; a sampler made with them goes on where this one is."""
        return self._drawn

    def draw(self) -> tuple[int, TaskRef]:
        """The next group's place in the order of submission, and its task."""
        number = self._drawn.groups
        point = derive(self._seed, _ENVIRONMENTS, number) / _SPAN
        source = self._sources[min(bisect_right(self._bounds, point), len(self._sources) - 1)]
        count = self._drawn.tasks.get(source.name, 0)
        self._drawn = Drawn(number + 1, {**self._drawn.tasks, source.name: count + 1})
        return number, TaskRef(source.name, self._split, self._index(source, count))

    def _index(self, source: Source, count: int) -> int:
        if source.size is None:
            return count
        epoch, position = divmod(count, source.size)
        return Permutation(source.size, derive(self._seed, _EPOCHS, epoch, _name_key(source.name)))(position)


def rollout_seed(seed: int, sequence: int) -> int:
    """The seed of everything that is drawn in the group `sequence`."""
    return derive(seed, _ROLLOUTS, sequence)


def held_out(seed: int, source: Source, split: str, count: int) -> list[TaskRef]:
    """`count` tasks of a split, the same for every evaluation of a run; all of them where there are fewer."""
    if source.size is None:
        return [TaskRef(source.name, split, index) for index in range(count)]
    order = Permutation(source.size, derive(seed, _HELD_OUT, _name_key(source.name)))
    return [TaskRef(source.name, split, order(index)) for index in range(min(count, source.size))]


def _name_key(name: str) -> int:
    """A name as a number, the same in every process (which `hash` is not)."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
