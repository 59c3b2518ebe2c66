"""The copy-a-letter task of `vs_trl.py` as a local plugin: repeat the prompt's first letter."""

from __future__ import annotations

import random
from typing import Any

from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl
from areal_plugins.data import Score, Task

LETTERS = "abcdefghi"
LENGTH = 8


def prompt(index: int) -> str:
    """Four letters, fixed by the task's number."""
    return "".join(random.Random(index).choices(LETTERS, k=4))


class Copy:
    """Reward: the share of `LENGTH` answer characters that repeat the prompt's first one."""

    def size(self, split: str) -> int | None:
        return 4096

    def task(self, split: str, index: int) -> Task:
        return Task(prompt=prompt(index))

    async def run(self, task: Task, session: Any) -> Score:
        reply = await session.generate(task.prompt)
        return Score(reply.text.count(task.prompt[0]) / LENGTH)


def make(options: Any, context: Any) -> Copy:
    """Build the environment; it has no options."""
    return Copy()


@hookimpl
def areal_environments() -> list[EnvironmentDescriptor]:
    """Register `copy`."""
    capabilities = EnvironmentCapabilities(scores=True)
    return [
        EnvironmentDescriptor(
            name="copy", summary="copy a letter", factory=f"{__name__}:make", capabilities=capabilities
        )
    ]
