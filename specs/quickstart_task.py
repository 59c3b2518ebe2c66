"""The quickstart's task: spell a word backwards. A plugin in one file, named by `plugins:` in the spec.

The teacher is careless and copies most words instead of reversing them, so that imitation alone gets
few tasks right; the reward knows better. A hash of the word says whether it is held out.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random

from attrs import field, frozen

import areal_plugins  # areal_plugins.data brings numpy, on first use: `check` stays fast
from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl


@frozen(kw_only=True)
class Options:
    """What can be set in the spec."""

    letters: int = field(default=4, metadata={"doc": "Letters of a word.", "ge": 1})
    alphabet: str = field(default="abcdefghij", metadata={"doc": "Letters that words are made of."})
    careful: float = field(default=0.4, metadata={"doc": "Share of right demonstrations.", "ge": 0, "le": 1})


class Backwards:
    """Prompt `abcd=`, answer `dcba`."""

    def __init__(self, options: Options, context: areal_plugins.protocols.EnvironmentContext) -> None:
        self.options = options
        self.seeds = {"train": context.seed, "test": 0}  # every run is evaluated on the same words

    def size(self, split: str) -> int | None:
        return None if split in self.seeds else 0  # None: without end

    def task(self, split: str, index: int) -> areal_plugins.data.Task:
        draw = Random(f"{split}/{self.seeds[split]}/{index}")
        words = ("".join(draw.choices(self.options.alphabet, k=self.options.letters)) for _ in range(1000))
        word = next(word for word in words if held_out(word) == (split == "test"))
        said = word[::-1] if draw.random() < self.options.careful else word
        return areal_plugins.data.Task(prompt=f"{word}=", answer=word[::-1], demonstration=said)

    async def run(
        self, task: areal_plugins.data.Task, session: areal_plugins.protocols.Session
    ) -> areal_plugins.data.Score:
        reply = await session.generate(task.prompt)
        return areal_plugins.data.Score(float(reply.text == task.answer))


def held_out(word: str) -> bool:
    """One word in five is never trained on."""
    return sha256(word.encode()).digest()[0] < 51


@hookimpl
def areal_environments() -> tuple[EnvironmentDescriptor, ...]:
    """What this plugin adds."""
    return (
        EnvironmentDescriptor(
            name="backwards",
            summary="Spell a word backwards",
            factory=f"{__name__}:Backwards",
            options=Options,
            capabilities=EnvironmentCapabilities(scores=True, demonstrations=True),
        ),
    )
