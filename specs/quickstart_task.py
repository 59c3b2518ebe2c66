"""The quickstart's task: spell a word backwards. A plugin in one file, named by `plugins:` in the spec.

The teacher is careless and copies most words instead of reversing them, so that imitation alone gets
few tasks right; the reward knows better. A hash of the word says whether it is held out.
"""

from hashlib import sha256
from random import Random

from attrs import field, frozen

from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor, hookimpl
from areal_plugins.data import Score, Task
from areal_plugins.protocols import EnvironmentContext, Session


@frozen(kw_only=True)
class Options:
    """What can be set in the spec."""

    letters: int = field(default=4, metadata={"doc": "Letters of a word.", "ge": 1})
    alphabet: str = field(default="abcdefghij", metadata={"doc": "Letters that words are made of."})
    careful: float = field(default=0.4, metadata={"doc": "Share of right demonstrations.", "ge": 0, "le": 1})


class Backwards:
    """Prompt `abcd=`, answer `dcba`."""

    def __init__(self, options: Options, context: EnvironmentContext) -> None:
        self.options = options
        self.seeds = {"train": context.seed, "test": 0}  # every run is evaluated on the same words

    def size(self, split: str) -> int | None:
        return None if split in self.seeds else 0  # None: without end

    def task(self, split: str, index: int) -> Task:
        draw = Random(f"{split}/{self.seeds[split]}/{index}")
        word = ""
        while not word or held_out(word) != (split == "test"):
            word = "".join(draw.choices(self.options.alphabet, k=self.options.letters))
        said = word[::-1] if draw.random() < self.options.careful else word
        return Task(prompt=f"{word}=", answer=word[::-1], demonstration=said)

    async def run(self, task: Task, session: Session) -> Score:
        reply = await session.generate(task.prompt)
        return Score(float(reply.text == task.answer))


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
