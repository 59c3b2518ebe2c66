"""The tokenizer of `tokenizers` beneath one of transformers: the same at a quarter of the time or less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedTokenizerFast


def decoder(tokenizer: Any) -> Callable[..., str]:
    """`tokenizer.decode`, or the bare one where the tokenizer does nothing else in it."""
    bare = _untouched(tokenizer, "decode", "_decode") and not tokenizer.clean_up_tokenization_spaces
    decode: Callable[..., str] = tokenizer.backend_tokenizer.decode if bare else tokenizer.decode
    return decode


def encoder(tokenizer: Any) -> Callable[[str], list[int]]:
    """Ids of a text without special tokens added, through the bare one where the tokenizer does nothing else."""
    if not _untouched(tokenizer, "encode", "_encode_plus"):
        return lambda text: list(tokenizer.encode(text, add_special_tokens=False))
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()  # as transformers does before it encodes: a file may say otherwise
    backend.no_padding()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    return lambda text: list(backend.encode(text, add_special_tokens=False).ids)


def _untouched(tokenizer: Any, *methods: str) -> bool:
    """Whether no class has replaced these methods of the common one."""
    kind = type(tokenizer)
    return all(getattr(kind, name, None) is getattr(PreTrainedTokenizerFast, name) for name in methods)
