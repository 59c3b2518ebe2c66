"""A Hugging Face directory as the engine needs it: model, limits, ends of answers, text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from areal_plugins import InputError
from areal_plugins.builtin.engine import attention
from areal_plugins.builtin.fast_tokenizer import decoder

_VARIABLE_ROPE = ("dynamic", "longrope")
"""Rotary embeddings that change with the longest sequence of a batch, once beyond the original length."""


def load_model(directory: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The causal language model in `directory`, with the engine's attention.

    Raises:
        InputError: there is none, or its attention cannot be replaced.

    """
    if not (directory / "config.json").is_file():
        raise InputError(str(directory), "it has no config.json", "give the directory of a Hugging Face model")
    disable_progress_bar()  # type: ignore[no-untyped-call]  # a worker's output is a log
    try:
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(str(directory), f"no causal language model loads from it: {error}") from error
    return replace_attention(model, directory).to(device).eval().requires_grad_(False)


def replace_attention(model: Any, directory: Path) -> Any:
    """Let every layer call `attention.attend`; raises `InputError` for models that do not allow it."""
    if not model._supports_attention_backend:
        name = type(model).__name__
        raise InputError(
            str(directory), f"the attention of {name} cannot be replaced in transformers", "use another engine"
        )
    AttentionInterface.register(attention.NAME, attention.attend)
    model.set_attn_implementation(attention.NAME)
    return model


def longest_sequence(model: Any, asked: int | None, where: str) -> int:
    """Most tokens of a prompt and its answer: `asked`, or what the model was made for.

    Raises:
        InputError: the model was not made for so many, or does not say for how many.

    """
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    limit = getattr(config, "max_position_embeddings", None)
    if rope.get("rope_type") in _VARIABLE_ROPE:
        limit = rope.get("original_max_position_embeddings") or limit
    if (chunk := getattr(config, "attention_chunk_size", None)) is not None:
        limit = min(chunk, limit or chunk)  # within one chunk, chunked attention is plain
    if asked is None and limit is None:
        raise InputError(where, "its config.json gives no max_position_embeddings", "set max_model_len")
    if asked is not None and limit is not None and asked > limit:
        raise InputError(where, f"max_model_len {asked} is more than the {limit} positions of the model")
    return int(asked or limit or 0)


def end_ids(model: Any, tokenizer: Any | None) -> tuple[int, ...]:
    """Every token id that ends an answer, by the generation config, the config and the tokenizer."""
    owners = (model.generation_config, model.config.get_text_config(), tokenizer)
    found = [_ids(getattr(owner, "eos_token_id", None)) for owner in owners if owner is not None]
    return tuple(sorted({i for ids in found for i in ids}))


def _ids(value: int | Iterable[int] | None) -> tuple[int, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else tuple(value)


def load_tokenizer(directory: Path) -> Any | None:
    """The tokenizer in `directory`; None when it holds none."""
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")
    if not any((directory / name).is_file() for name in names):
        return None
    return AutoTokenizer.from_pretrained(directory, local_files_only=True)


class Text:
    """Answers as text, without special tokens; empty without a tokenizer."""

    def __init__(self, tokenizer: Any | None) -> None:
        self.tokenizer = tokenizer
        self._decode = None if tokenizer is None else decoder(tokenizer)

    def decode(self, tokens: Sequence[int]) -> str:
        return "" if self._decode is None else self._decode(tokens, skip_special_tokens=True)

    def special_id(self, text: str) -> int | None:
        """The id of the special token written `text`, which decoding would leave out."""
        if self.tokenizer is None or text not in self.tokenizer.all_special_tokens:
            return None
        return int(self.tokenizer.convert_tokens_to_ids(text))
