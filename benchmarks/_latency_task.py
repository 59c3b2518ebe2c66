"""The task of `async_gain.py` as a local plugin: answers whose lengths and whose rewards' latencies both spread 10x.

Lengths are the task's, not the model's, so that every run generates exactly the same number of tokens.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from attrs import field, frozen

from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl
from areal_plugins.data import Score, Task

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@frozen(kw_only=True)
class Options:
    """The two spreads; each is drawn log-uniformly, once for every member of every task."""

    shortest: int = field(default=16, metadata={"doc": "Tokens of the shortest answer.", "ge": 1})
    longest: int = field(default=160, metadata={"doc": "Tokens of the longest answer.", "ge": 1})
    quickest: float = field(default=0.1, metadata={"doc": "Seconds that the quickest reward takes.", "gt": 0})
    slowest: float = field(default=1.0, metadata={"doc": "Seconds that the slowest reward takes.", "gt": 0})


def prompt(index: int) -> str:
    """Eight letters, fixed by the task's number."""
    return "".join(Random(index).choices(LETTERS, k=8))


def length(options: Options, index: int, member: int) -> int:
    """Tokens of the member's answer."""
    return round(_log_uniform(f"length/{index}/{member}", options.shortest, options.longest))


def latency(options: Options, index: int, member: int) -> float:
    """Seconds until the member's reward is known."""
    return _log_uniform(f"latency/{index}/{member}", options.quickest, options.slowest)


def _log_uniform(draw: str, low: float, high: float) -> float:
    share = Random(draw).random()
    return float(low ** (1 - share) * high**share)


class Latency:
    """Reward: the share of the answer's characters that come early in the alphabet; rarely equal in a group."""

    def __init__(self, options: Options, context: Any) -> None:
        self.options = options

    def size(self, split: str) -> int | None:
        return None if split == "train" else 0

    def task(self, split: str, index: int) -> Task:
        return Task(prompt=prompt(index), metadata={"index": index})

    async def run(self, task: Task, session: Any) -> Score:
        place = task.metadata["index"], session.member
        reply = await session.generate(task.prompt, max_new_tokens=length(self.options, *place), ignore_eos=True)
        await asyncio.sleep(latency(self.options, *place))
        return Score(sum(letter < "n" for letter in reply.text) / max(1, len(reply.text)))


@hookimpl
def areal_environments() -> list[EnvironmentDescriptor]:
    """Register `latency`."""
    return [
        EnvironmentDescriptor(
            name="latency",
            summary="answers of given lengths, judged late",
            factory=f"{__name__}:Latency",
            options=Options,
            capabilities=EnvironmentCapabilities(scores=True),
        )
    ]
