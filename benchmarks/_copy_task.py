"""The copy-a-letter task of `vs_trl.py` as a local plugin: repeat the prompt's first letter."""

from __future__ import annotations

import random
from typing import Any

from attrs import frozen

from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl
from areal_plugins.data import Message, Score, Task

LETTERS = "abcdefghi"


def prompt(index: int) -> str:
    """Four letters, fixed by the task's number."""
    return "".join(random.Random(index).choices(LETTERS, k=4))


def ask(index: int, chat: bool, letters: int) -> str | list[dict[str, str]]:
    """The prompt itself, or the turns that put it to a chat model."""
    if not chat:
        return prompt(index)
    system = f"Repeat the first letter of what you are given, {letters} times, and say nothing else."
    return [{"role": "system", "content": system}, {"role": "user", "content": " ".join(prompt(index))}]


@frozen
class CopyOptions:
    """How the task is put, and how many letters the right answer has."""

    chat: bool = False
    letters: int = 8


class Copy:
    """Reward: the share of the wanted letters that repeat the prompt's first one."""

    def __init__(self, options: CopyOptions) -> None:
        self._chat, self._letters = options.chat, options.letters

    def size(self, split: str) -> int | None:
        return 4096

    def task(self, split: str, index: int) -> Task:
        asked = ask(index, self._chat, self._letters)
        turns = asked if isinstance(asked, str) else tuple(Message(**turn) for turn in asked)
        return Task(prompt=turns, answer=prompt(index)[0])

    async def run(self, task: Task, session: Any) -> Score:
        reply = await session.generate(task.prompt)
        return Score(min(1.0, reply.text.count(task.answer) / self._letters))


def make(options: CopyOptions, context: Any) -> Copy:
    """Build the environment."""
    return Copy(options)


@hookimpl
def areal_environments() -> list[EnvironmentDescriptor]:
    """Register `copy`."""
    return [
        EnvironmentDescriptor(
            name="copy",
            summary="copy a letter",
            factory=f"{__name__}:make",
            options=CopyOptions,
            capabilities=EnvironmentCapabilities(scores=True),
        )
    ]
