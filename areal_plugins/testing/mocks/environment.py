"""Tasks that are numbers."""

from __future__ import annotations

import asyncio

from areal_core.contexts import EnvironmentContext
from areal_core.data import Score, Task
from areal_core.protocols import Session
from areal_core.workers.seeds import derive
from areal_plugins.testing.mocks import EnvironmentOptions

_SPAN = float(1 << 63)


def make(options: EnvironmentOptions, context: EnvironmentContext) -> MockEnvironment:
    """The factory."""
    return MockEnvironment(options, context)


class MockEnvironment:
    """One turn; the verdict is the reward's, or 1 where there is none, after up to `reward_seconds`."""

    def __init__(self, options: EnvironmentOptions, context: EnvironmentContext) -> None:
        self._options, self._judged = options, context.reward is not None

    def size(self, split: str) -> int | None:
        return {"train": self._options.size, "test": self._options.test_size}.get(split, 0)

    def task(self, split: str, index: int) -> Task:
        demonstration = f"it is {index}" if self._options.demonstrates else None
        return Task(prompt=f"{split} {index}", answer=str(index), demonstration=demonstration)

    async def run(self, task: Task, session: Session) -> Score:
        reply = await session.generate(task.prompt)
        if int(task.answer) in self._options.failing:
            raise RuntimeError(f"told to fail on task {task.answer}")
        await asyncio.sleep(self._options.reward_seconds * derive(session.seed, 7) / _SPAN)
        return await session.score(reply.text) if self._judged else Score(1.0)
