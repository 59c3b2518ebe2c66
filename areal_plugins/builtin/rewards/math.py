"""The reward `math`: the answer is mathematically equal to the task's answer."""

from __future__ import annotations

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score
from areal_plugins.builtin.rewards.extract import EXTRACTORS
from areal_plugins.builtin.rewards.isolation import IsolatedFunction, LimitExceeded, Limits
from areal_plugins.builtin.rewards.options import MathOptions


class Math:
    """math-verify in processes that are killed at their time-out.

    Part `unverified` is 1 where a verification ended without a verdict, by its time or its memory.
    """

    def __init__(self, options: MathOptions, context: RewardContext) -> None:
        self._options, self._blocking = options, context.blocking
        limits = Limits(options.timeout, options.memory_mib)
        self._verify = IsolatedFunction("areal_plugins.builtin.rewards.verification:verify", limits, options.workers)
        self._verify.start()

    async def score(self, sample: Sample) -> Score:
        """1 or 0. Raises `CallFailed` where the task's answer is no mathematics, or the process died."""
        auto = self._options.extract == "auto"
        found = sample.answer if auto else EXTRACTORS[self._options.extract](sample.answer)
        if found is None:
            return Score(0.0, {"unverified": 0.0})
        args = sample.task.answer, found, not auto
        try:
            right = self._verify.call_blocking(*args) if self._blocking else await self._verify.call(*args)
        except LimitExceeded:
            if self._options.on_timeout == "error":
                raise
            return Score(0.0, {"unverified": 1.0})
        return Score(float(right), {"unverified": 0.0})

    async def close(self) -> None:
        """End the processes."""
        self._verify.close()
