"""Tasks that are numbers."""

from __future__ import annotations

from areal_core.contexts import EnvironmentContext
from areal_core.data import Score, Task
from areal_core.protocols import Session
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import EnvironmentOptions


def make(options: EnvironmentOptions, context: EnvironmentContext) -> MockEnvironment:
    """The factory."""
    return MockEnvironment(options, context)


class MockEnvironment:
    """One turn; the verdict is the reward's, or 1 where there is none, after the latency of `run`."""

    def __init__(self, options: EnvironmentOptions, context: EnvironmentContext) -> None:
        self._options, self._judged, self._conduct = options, context.reward is not None, Conduct(options)

    def size(self, split: str) -> int | None:
        self._conduct.act_here("size")
        return {"train": self._options.size, "test": self._options.test_size}.get(split, 0)

    def task(self, split: str, index: int) -> Task:
        self._conduct.act_here("task")
        size = {"train": self._options.size, "test": self._options.test_size}.get(split, 0)
        if size is not None and not 0 <= index < size:
            raise IndexError(f"{split} has {size} tasks, none is the {index}-th")
        demonstration = f"it is {index}" if self._options.demonstrates else None
        return Task(prompt=f"{split} {index}", answer=str(index), demonstration=demonstration)

    async def run(self, task: Task, session: Session) -> Score:
        reply = await session.generate(task.prompt)
        if int(task.answer) in self._options.failing:
            raise RuntimeError(f"told to fail on task {task.answer}")
        await self._conduct.act("run", session.seed)
        return await session.score(reply.text) if self._judged else Score(1.0)
