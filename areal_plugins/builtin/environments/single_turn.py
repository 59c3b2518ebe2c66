"""One question, one answer."""

from __future__ import annotations

from areal_core.data import Message, Score, Task
from areal_core.protocols import Session
from areal_plugins.builtin.environments.options import PromptStyle
from areal_plugins.builtin.environments.splits import Dataset, Question


class SingleTurn:
    """An environment that asks a data set's questions and takes the answers to the spec's reward."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset

    def size(self, split: str) -> int:
        return self._dataset.size(split)

    def task(self, split: str, index: int) -> Task:
        return self._dataset.task(split, index)

    async def run(self, task: Task, session: Session) -> Score:
        reply = await session.generate(task.prompt)
        return await session.score(reply.text)


def styled(question: Question, style: PromptStyle, system: str | None) -> Question:
    """The prompt: `question` as it is, or as messages with the system's before them; messages stay what they are."""
    if isinstance(question, str):
        if style == "plain":
            return question
        question = (Message("user", question),)
    return question if system is None else (Message("system", system), *question)
