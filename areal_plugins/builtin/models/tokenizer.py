"""The tokenizer of a Hugging Face directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from areal_core.data import Message
from areal_plugins import InputError
from areal_plugins.builtin.fast_tokenizer import encoder


class HuggingFaceTokenizer:
    """`protocols.Tokenizer` over what `AutoTokenizer` finds in `directory`.

    `eos_ids` are the tokenizer's own and those of `generation_config.json`, in this order: a chat
    model often ends a turn with another token than a document.

    Raises:
        InputError: there is no tokenizer in `directory`.

    """

    def __init__(self, directory: Path, trust_remote_code: bool = False) -> None:
        self.directory = directory
        self._tokenizer = _load(directory, trust_remote_code)
        self._encode = encoder(self._tokenizer)
        self.eos_ids: tuple[int, ...] = tuple(dict.fromkeys(_eos_ids(self._tokenizer, directory)))

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without special tokens added."""
        return self._encode(text)

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special tokens left out."""
        text: str = self._tokenizer.decode(
            [int(token) for token in tokens], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the assistant's next turn, by the model's chat template.

        Raises:
            InputError: the model has no chat template, or the template refuses these messages.

        """
        if self._tokenizer.chat_template is None:
            way_out = "use prompts that are plain text, or add a chat_template.jinja there"
            raise InputError(str(self.directory), "the model has no chat template to render messages with", way_out)
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return self._apply(turns)

    def _apply(self, turns: list[dict[str, str]]) -> str:
        from jinja2 import TemplateError

        try:
            text: str = self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        except TemplateError as error:
            raise InputError(str(self.directory), f"its chat template refuses the messages: {error}") from error
        return text


def _load(directory: Path, trust_remote_code: bool) -> Any:
    if not (directory / "tokenizer_config.json").is_file() and not (directory / "tokenizer.json").is_file():
        raise InputError(str(directory), "there is neither a tokenizer.json nor a tokenizer_config.json")
    try:
        return AutoTokenizer.from_pretrained(str(directory), trust_remote_code=trust_remote_code, local_files_only=True)
    except (OSError, ValueError) as error:
        raise InputError(str(directory), f"the tokenizer cannot be loaded: {error}") from error


def _eos_ids(tokenizer: Any, directory: Path) -> Iterator[int]:
    if tokenizer.eos_token_id is not None:
        yield int(tokenizer.eos_token_id)
    file = directory / "generation_config.json"
    if file.is_file():
        ids = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        yield from ids if isinstance(ids, list) else [] if ids is None else [ids]
