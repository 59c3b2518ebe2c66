"""The live environment."""

from __future__ import annotations

from areal_plugin_reasoning_gym import ReasoningGymOptions
from areal_plugin_reasoning_gym.generation import Generator, Tasks
from areal_plugin_reasoning_gym.judging import Judge
from areal_plugins.data import Message, Score, Task
from areal_plugins.protocols import EnvironmentContext, Session


def make(options: ReasoningGymOptions, context: EnvironmentContext) -> ReasoningGym:
    """The factory; raises `InputError` where reasoning-gym has no such task, or refuses its configuration."""
    return ReasoningGym(options, context)


class ReasoningGym:
    """Asks one question, and judges the answer unless the spec gives a reward."""

    def __init__(self, options: ReasoningGymOptions, context: EnvironmentContext) -> None:
        generator = Generator(f"environment {context.name}", options.task, options.config)
        self._options = options
        self._tasks = Tasks(generator, context.seed, options.test_share)
        self._judge = Judge(generator, options, context.blocking) if context.reward is None else None

    def size(self, split: str) -> int | None:
        return {"train": self._options.train_size, "test": self._options.test_size}.get(split, 0)

    def task(self, split: str, index: int) -> Task:
        size = self.size(split)
        if index < 0 or (size is not None and index >= size):
            raise IndexError(f"split {split!r} has {size} tasks, none of them is number {index}")
        entry = self._tasks.entry(split, index)
        return Task(
            prompt=self._prompt(entry["question"]),
            answer=entry["answer"] or "",
            demonstration=entry["answer"],
            metadata=entry,
        )

    async def run(self, task: Task, session: Session) -> Score:
        reply = await session.generate(task.prompt)
        if self._judge is None:
            return await session.score(reply.text)
        return await self._judge.verdict(reply.text, task.metadata)

    async def close(self) -> None:
        if self._judge is not None:
            await self._judge.close()

    def _prompt(self, question: str) -> str | tuple[Message, ...]:
        options = self._options
        text = question if options.instruction is None else f"{question}\n{options.instruction}"
        if options.prompt == "plain":
            return text
        messages = (Message("user", text),)
        return messages if options.system is None else (Message("system", options.system), *messages)
