"""From a GGUF file to a Hugging Face directory, by transformers' own reader."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from areal_plugins import InputError


def convert(file: Path, dtype: str, directory: Path) -> None:
    """Write `file`'s model, dequantized to `dtype`, and its tokenizer with the chat template.

    Raises:
        InputError: transformers cannot read it (an architecture or quantization that it does not know).

    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(
            str(file.parent),
            gguf_file=file.name,
            dtype=getattr(torch, dtype),
            quantization_config=GgufConfig(dequantize=True),
        )
    except (ValueError, NotImplementedError, KeyError) as error:
        raise InputError(str(file), f"transformers cannot read it: {error}") from error
    model.save_pretrained(str(directory))
    tokenizer.save_pretrained(str(directory))
