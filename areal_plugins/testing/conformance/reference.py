"""A tiny Qwen2 in a directory, and what plain transformers makes of it in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from attrs import frozen
from transformers import AutoModelForCausalLM

from areal_core.contexts import ModelContext
from areal_core.protocols import Tokenizer
from areal_plugins.builtin.models import TinyOptions
from areal_plugins.builtin.models.tiny import TinySource

ALPHABET = "abcdefghijklmnopqrstuvwxyz .,?"
LONGEST = 128

_WORK = TemporaryDirectory(prefix="areal-conformance-")  # removed when the process ends
_OPTIONS = TinyOptions(
    alphabet=ALPHABET,
    hidden_size=32,
    layers=2,
    heads=4,
    kv_heads=2,
    intermediate=48,
    max_positions=LONGEST,
    initializer_range=0.5,
)


@frozen(eq=False)
class Reference:
    """The model in `directory`, in float64; its tokens are characters."""

    directory: Path
    model: Any
    tokenizer: Tokenizer

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self.model.config.vocab_size)

    @property
    def eos(self) -> int:
        """The token that ends an answer."""
        return int(self.model.config.eos_token_id)

    def logits(self, prompt: Sequence[int], answer: Sequence[int] | np.ndarray) -> np.ndarray:
        """[T, V] float64: what one forward pass over everything predicts each token of `answer` from."""
        tokens = (*map(int, prompt), *map(int, answer))
        return _logits(self, tokens)[len(prompt) - 1 : -1].copy()

    def greedy(self, prompt: Sequence[int], length: int) -> list[int]:
        """The likeliest token again and again, through the end of an answer."""
        answer: list[int] = []
        for _ in range(length):
            answer.append(int(self.logits(prompt, [*answer, 0])[-1].argmax()))
        return answer

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Each parameter as a float32 copy, under its canonical name."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach().to(torch.float32, copy=True)


@cache
def reference(seed: int) -> Reference:
    """A random start, made once a process; equal seeds give equal bytes."""
    work = Path(_WORK.name, str(seed))
    source = TinySource(_OPTIONS, ModelContext(cache=work, work=work, seed=seed))
    directory = source.materialize()
    return Reference(directory, load(directory), source.tokenizer(directory))


@cache
def _logits(of: Reference, tokens: tuple[int, ...]) -> np.ndarray:
    with torch.no_grad():
        found: np.ndarray = of.model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    return found


def load(directory: Path) -> Any:
    """The model as transformers loads it, in float64 and without anything clever."""
    model: Any = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager")
    return model.double().eval()


def distribution(logits: np.ndarray, temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0) -> np.ndarray:
    """The distribution [V] of one token: temperature, then the `top_k` best, then the nucleus `top_p`
    (Holtzman et al., 2020: the fewest likeliest tokens that together reach it).
    """
    p = np.exp((logits - logits.max()) / (temperature or 1.0))
    order = np.argsort(-p, kind="stable")
    if top_k and temperature:
        p[order[top_k:]] = 0
    p /= p.sum()
    if top_p < 1 and temperature:
        before = np.cumsum(p[order]) - p[order]
        p[order[before >= top_p]] = 0
    found: np.ndarray = p / p.sum()
    return found
