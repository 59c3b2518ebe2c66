"""A model directory with one number in it, and a tokenizer of bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from areal_core.contexts import ModelContext
from areal_core.data import Message
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import Script


def make(options: Script, context: ModelContext) -> MockModel:
    """The factory."""
    return MockModel(options, context.work)


class MockModel:
    """Writes `config.json`."""

    def __init__(self, options: Script, folder: Path) -> None:
        self._folder, self._conduct = folder, Conduct(options)

    def materialize(self) -> Path:
        self._conduct.act_here("materialize")
        write(self._folder, steps=0)
        return self._folder

    def tokenizer(self, directory: Path) -> MockTokenizer:
        self._conduct.act_here("tokenizer")
        return MockTokenizer()


class MockTokenizer:
    """UTF-8, a byte a token."""

    eos_ids: tuple[int, ...] = (0,)

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token % 256 for token in tokens if token).decode(errors="replace")

    def render(self, messages: Sequence[Message]) -> str:
        return "".join(f"{message.role}: {message.content}\n" for message in messages)


def write(folder: Path, steps: int) -> None:
    """A model that was trained for `steps` steps."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "mock", "steps": steps}))


def read(folder: Path) -> int:
    """For how many steps the model was trained."""
    steps: int = json.loads((folder / "config.json").read_text())["steps"]
    return steps
