"""Tasks by index, without end, and never the same question on both sides of the split."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from attrs import frozen
from reasoning_gym.factory import DATASETS  # type: ignore[import-untyped]

from areal_plugins import InputError

_SLOTS = 64
_ROUNDS = 16
_MOST_ROUNDS = 40 * _ROUNDS

HASH_ORDERED = frozenset({"isomorphic_strings", "polynomial_multiplication", "ransom_note"})
"""Data sets of reasoning-gym 0.1 that iterate over sets of texts: their tasks change with PYTHONHASHSEED."""


@frozen
class Generator:
    """A data set of reasoning-gym by name and configuration.

    Raises:
        InputError: there is no such data set, or it refuses the configuration; `where` says whose.

    """

    where: str
    task: str
    config: Mapping[str, Any]

    def __attrs_post_init__(self) -> None:
        if self.task not in DATASETS:
            near = difflib.get_close_matches(self.task, DATASETS, n=3)
            raise InputError(self.where, f"reasoning-gym has no task {self.task!r}", _did_you_mean(near))
        if self.task in HASH_ORDERED and not os.environ.get("PYTHONHASHSEED", "random").isdecimal():
            problem = f"{self.task} gives every process other tasks unless PYTHONHASHSEED is set"
            raise InputError(self.where, problem, "export PYTHONHASHSEED=0")
        self._refuse_unknown()
        self.dataset(0)

    def dataset(self, seed: int) -> Any:
        """The data set from `seed`, long enough for one block of candidates."""
        make, configure = DATASETS[self.task]
        try:
            return make(configure(**self.config, seed=seed, size=_SLOTS * _ROUNDS))
        except (AssertionError, TypeError, ValueError, KeyError) as error:
            raise InputError(self.where, f"config does not suit {self.task}: {error}") from error

    def _refuse_unknown(self) -> None:
        known = [f.name for f in dataclasses.fields(DATASETS[self.task][1]) if f.name not in ("seed", "size")]
        for key in self.config:
            if key not in known:
                raise InputError(self.where, f"{self.task} has no config {key!r}", f"it has {', '.join(known)}")


class Tasks:
    """The entries of both splits: `question`, `answer` and `metadata`, as reasoning-gym makes them.

    A hash of a question's text decides its split, so that the two share no question, in any process
    and for any seed. An index has a sequence of candidates and takes the first of its own split. The
    data set draws candidate `i` from its seed plus `i`; blocks of candidates take seeds far apart.
    Held-out tasks do not depend on the run's seed: every run is evaluated on the same.
    """

    def __init__(self, generator: Generator, seed: int, test_share: float) -> None:
        self._generator, self._share = generator, test_share
        self._seeds = {"train": seed, "test": 0}
        self._dataset = lru_cache(maxsize=32)(generator.dataset)

    def entry(self, split: str, index: int) -> dict[str, Any]:
        """The `index`-th entry of the split.

        Raises:
            InputError: hundreds of candidates belong to the other split.

        """
        chunk, slot = divmod(index, _SLOTS)
        for round_ in range(_MOST_ROUNDS):
            block, place = divmod(round_, _ROUNDS)
            entry: dict[str, Any] = self._dataset(self._seed(split, chunk, block))[slot + _SLOTS * place]
            if split == split_of(entry["question"], self._share):
                return entry
        problem = f"found no question for the split {split!r}: the task has too few different ones"
        raise InputError(self._generator.where, problem, "change config, or test_share")

    def _seed(self, split: str, chunk: int, block: int) -> int:
        return _hash(f"{self._seeds[split]}/{split}/{chunk}/{block}") >> 33


def split_of(question: str, test_share: float) -> str:
    """The split that a question belongs to."""
    return "test" if _hash(question) < test_share * 2**64 else "train"


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def _did_you_mean(near: list[str]) -> str:
    return f"did you mean {' or '.join(near)}?" if near else "its documentation lists them"
