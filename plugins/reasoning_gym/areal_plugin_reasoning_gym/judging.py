"""The data set's own verdict, in a process that can be killed where its judge is more than a comparison.

Judges of their own parse and evaluate what the model wrote: `9**9**9**9` takes them for ever.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from reasoning_gym.dataset import ProceduralDataset  # type: ignore[import-untyped]

from areal_plugin_reasoning_gym import ReasoningGymOptions
from areal_plugin_reasoning_gym.generation import Generator
from areal_plugins.builtin.rewards.extract import EXTRACTORS, last_number, number
from areal_plugins.builtin.rewards.isolation import IsolatedFunction, LimitExceeded, Limits
from areal_plugins.data import Score


class Judge:
    """Scores answers with the data set's `score_answer`.

    Parts: `correct` is 1 for its full score; `lenient` (where the answer is a number) is 1 when the
    last number of the answer is right; `unverified` is 1 when the judgement exceeded its time-out,
    which counts as a wrong answer.
    """

    def __init__(self, generator: Generator, options: ReasoningGymOptions, blocking: bool) -> None:
        self._generator, self._options, self._blocking = generator, options, blocking
        self._extract = EXTRACTORS["whole" if options.answer == "strict" else options.answer]
        dataset = generator.dataset(0)
        self._score_here = dataset.score_answer
        self._isolated: IsolatedFunction | None = None
        compares = type(dataset).score_answer is ProceduralDataset.score_answer
        if options.timeout is not None and not compares:
            self._isolated = IsolatedFunction(f"{__name__}:score", Limits(options.timeout), options.workers)
            self._isolated.start()

    async def verdict(self, answer: str, entry: Mapping[str, Any]) -> Score:
        """The score of `answer`, in [0, 1]."""
        try:
            value = await self._score(self._extract(answer), entry)
        except LimitExceeded:
            return Score(0.0, {"correct": 0.0, "unverified": 1.0} | _lenient(answer, entry))
        correct = float(value >= 1.0)
        parts = {"correct": correct, "unverified": 0.0} | _lenient(answer, entry)
        return Score(value if self._options.partial_credit else correct, parts)

    async def close(self) -> None:
        """End the processes."""
        if self._isolated is not None:
            self._isolated.close()

    async def _score(self, answer: str | None, entry: Mapping[str, Any]) -> float:
        if self._isolated is None:
            return float(self._score_here(answer, entry))
        # Pickled because judges tell tuples from lists; it goes to our own process, whose replies are plain.
        args = self._generator.task, pickle.dumps(dict(self._generator.config)), answer, pickle.dumps(entry)
        call = self._isolated.call_blocking(*args) if self._blocking else await self._isolated.call(*args)
        return float(call)


def score(task: str, config: bytes, answer: str | None, entry: bytes) -> float:
    """One judgement as the process makes it."""
    return float(_dataset(task, config).score_answer(answer, pickle.loads(entry)))  # noqa: S301 (our parent's)


@lru_cache(maxsize=4)
def _dataset(task: str, config: bytes) -> Any:
    return Generator("reasoning-gym", task, pickle.loads(config)).dataset(0)  # noqa: S301 (our parent's)


def _lenient(answer: str, entry: Mapping[str, Any]) -> dict[str, float]:
    gold = number(entry["answer"])
    return {} if gold is None else {"lenient": float(number(last_number(answer) or "") == gold)}
