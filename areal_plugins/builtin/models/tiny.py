"""A small decoder with random weights, written as a Hugging Face directory with numpy alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from safetensors.numpy import save_file

from areal_core.contexts import ModelContext
from areal_plugins import InputError
from areal_plugins.builtin.models import TinyOptions, tiny_problems
from areal_plugins.builtin.models.characters import EOS, PAD, write_tokenizer
from areal_plugins.builtin.models.once import made_once
from areal_plugins.builtin.models.size import shapes, vocabulary
from areal_plugins.builtin.models.tokenizer import HuggingFaceTokenizer

_FORMAT = 1  # part of the directory's name: a change of what is written must not find older ones


class TinySource:
    """`protocols.ModelSource` of a random start: equal options and seed give equal bytes."""

    def __init__(self, options: TinyOptions, context: ModelContext) -> None:
        for key, problem in tiny_problems(options):
            raise InputError(f"model tiny: {key}", problem)
        self._options, self._context = options, context

    def materialize(self) -> Path:
        """The directory below the run's own; made once, then found again."""
        identity = json.dumps([_FORMAT, self._context.seed, attrs.asdict(self._options)], sort_keys=True)
        digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
        return made_once(self._context.work / f"tiny-{self._options.architecture}-{digest}", self._write)

    def tokenizer(self, directory: Path) -> AlphabetTokenizer:
        """The tokenizer in `directory`; refuses characters outside the alphabet."""
        return AlphabetTokenizer(directory, self._options.alphabet)

    def _write(self, directory: Path) -> None:
        options = self._options
        _write_json(directory / "config.json", config(options))
        _write_json(directory / "generation_config.json", {"eos_token_id": EOS, "pad_token_id": PAD})
        write_tokenizer(directory, options.alphabet, options.max_positions, options.chat_template)
        save_file(dict(weights(options, self._context.seed)), directory / "model.safetensors", {"format": "pt"})


class AlphabetTokenizer(HuggingFaceTokenizer):
    """One token a character. A character outside the alphabet would vanish, so it is an error."""

    def __init__(self, directory: Path, alphabet: str) -> None:
        super().__init__(directory)
        self._alphabet = frozenset(alphabet)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, one a character."""
        if strange := set(text) - self._alphabet:
            where = text if len(text) <= 40 else f"{text[:40]}..."
            raise InputError(f"text {where!r}", f"{min(strange)!r} is not in the model's alphabet")
        return super().encode(text)


def config(options: TinyOptions) -> dict[str, Any]:
    """`config.json` of the decoder."""
    name = {"qwen2": "Qwen2ForCausalLM", "llama": "LlamaForCausalLM"}[options.architecture]
    return {
        "architectures": [name],
        "model_type": options.architecture,
        "dtype": "float32",
        "vocab_size": vocabulary(options),
        "hidden_size": options.hidden_size,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.kv_heads,
        "intermediate_size": options.intermediate,
        "max_position_embeddings": options.max_positions,
        "tie_word_embeddings": options.tie_embeddings,
        "initializer_range": options.initializer_range,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "bos_token_id": None,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }


def weights(options: TinyOptions, seed: int) -> Iterator[tuple[str, np.ndarray]]:
    """Each parameter under its Hugging Face name: matrices normal, norms one, biases zero.

    A parameter's values depend on the seed and its name alone, not on the order of drawing.
    """
    for name, shape in shapes(options):
        if name.endswith("norm.weight"):
            yield name, np.ones(shape, dtype=np.float32)
        elif name.endswith(".bias"):
            yield name, np.zeros(shape, dtype=np.float32)
        else:
            yield name, _normal(f"{seed}/{name}", shape, options.initializer_range)


def _normal(stream: str, shape: Sequence[int], scale: float) -> np.ndarray:
    key = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:16], "little")
    drawn = np.random.Generator(np.random.Philox(key=key)).standard_normal(tuple(shape), dtype=np.float32)
    return drawn * np.float32(scale)


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
