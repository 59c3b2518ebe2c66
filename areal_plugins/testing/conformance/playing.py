"""A rollout's link to a model that says what it is told to: for environments alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import attrs
from attrs import define, field, frozen

from areal_core.data import Message, Reply, Sampling, Score, Task
from areal_core.workers.seeds import derive

Say = Callable[[Task, int], str]
"""What the model says to a task in its n-th turn, from 0."""

_SAMPLING = {f.name for f in attrs.fields(Sampling)}


def answer_right(task: Task, turn: int) -> str:
    """The task's demonstration, or its answer."""
    return task.answer if task.demonstration is None else task.demonstration


@frozen
class Episode:
    """What happened: all that was said, in order, and the verdict."""

    said: tuple[tuple[str, str], ...]
    verdict: Score


@define(eq=False)
class ScriptedSession:
    """The `Session` of one member; `judged` False is an environment that has no reward and judges itself."""

    task: Task
    say: Say
    judged: bool
    member: int = 0
    seed: int = field(init=False)
    said: list[tuple[str, str]] = field(factory=list)
    turns: int = 0
    silent: bool = False

    @seed.default
    def _seed(self) -> int:
        return derive(17, self.member)

    async def generate(self, prompt: str | Sequence[Message] | None = None, **overrides: Any) -> Reply:
        if (prompt is None) != bool(self.said):
            raise RuntimeError("a conversation opens with a prompt, once, and goes on without one")
        if unknown := set(overrides) - _SAMPLING:
            raise TypeError(f"no settings of sampling: {', '.join(sorted(unknown))}")
        if prompt is not None:
            self.said.append(("prompt", prompt if isinstance(prompt, str) else repr(tuple(prompt))))
        await asyncio.sleep(0)
        if self.silent:
            await asyncio.Event().wait()
        text = self.say(self.task, self.turns)
        self.turns += 1
        self.said.append(("model", text))
        return Reply(text, tuple(text.encode()), "stop")

    def append(self, text: str) -> None:
        if not self.said:
            raise RuntimeError("nothing was asked yet: open with generate(prompt)")
        self.said.append(("environment", text))

    async def score(self, answer: str) -> Score:
        if not self.judged:
            raise RuntimeError("the spec gives this environment no reward")
        await asyncio.sleep(0)
        self.said.append(("score", answer))
        return Score(float(answer == answer_right(self.task, 0)))

    def episode(self, verdict: Score) -> Episode:
        """All of it."""
        return Episode(tuple(self.said), verdict)
