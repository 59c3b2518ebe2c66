"""The reward `function`: any Python function of a `Sample`."""

from __future__ import annotations

import asyncio
import inspect
from numbers import Real
from typing import Any

import attrs
import msgspec
import numpy as np

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.builtin.rewards.isolation import IsolatedFunction, Limits
from areal_plugins.builtin.rewards.options import FunctionOptions
from areal_plugins.builtin.rewards.target import find
from areal_plugins.builtin.rewards.threads import Threads


class Function:
    """Calls `function(sample, **arguments) -> float | bool | Score`, plain or `async`.

    An `async` function runs on the worker's loop, a plain one in a thread of its own; with a `timeout`, both in
    a killable process, where `sample.task.metadata` must be plain data. In debug mode (`blocking`)
    plain functions run on the loop. What the function raises, and any other result, is an error.
    """

    def __init__(self, options: FunctionOptions, context: RewardContext) -> None:
        self._options, self._blocking = options, context.blocking
        self._function = find(options.path)
        self._threads = Threads(options.path, self._function)
        self._isolated: IsolatedFunction | None = None
        if options.timeout is not None:
            self._isolated = IsolatedFunction(f"{__name__}:call", Limits(options.timeout), options.workers)
            self._isolated.start()

    async def score(self, sample: Sample) -> Score:
        """The function's verdict."""
        if self._isolated is not None:
            return await self._score_isolated(self._isolated, sample)
        if self._blocking or inspect.iscoroutinefunction(self._function):
            verdict = self._function(sample, **self._options.arguments)
        else:
            verdict = await self._threads.call(sample, **self._options.arguments)
        return as_score(await verdict if inspect.isawaitable(verdict) else verdict)

    async def close(self) -> None:
        """End the processes."""
        if self._isolated is not None:
            self._isolated.close()

    async def _score_isolated(self, isolated: IsolatedFunction, sample: Sample) -> Score:
        args = self._options.path, attrs.asdict(sample), dict(self._options.arguments)
        value, parts = isolated.call_blocking(*args) if self._blocking else await isolated.call(*args)
        return Score(value, parts)


def call(path: str, sample: dict[str, Any], arguments: dict[str, Any]) -> tuple[float, dict[str, float]]:
    """One call as the process makes it."""
    verdict = find(path)(msgspec.convert(sample, Sample), **arguments)
    score = as_score(asyncio.run(_awaited(verdict)) if inspect.isawaitable(verdict) else verdict)
    return score.value, score.parts


async def _awaited(verdict: Any) -> Any:
    return await verdict


def as_score(verdict: Any) -> Score:
    """The function's result as a score; raises `TypeError` where it is none of the three."""
    if isinstance(verdict, Score):
        return verdict
    if isinstance(verdict, Real | np.bool_):  # a bool is a Real
        return Score(float(verdict))
    raise TypeError(f"a reward function returns float, bool or Score, not {type(verdict).__name__}")
