"""Tiny random models in directories, engines on them, and plain references to compare with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from areal_core.contexts import EngineContext, Place
from areal_core.data import Completion, GenerateRequest, Sampling, WeightVersion
from areal_plugins.builtin.engine import TorchEngineOptions
from areal_plugins.builtin.engine.engine import TorchEngine
from areal_plugins.testing.conformance.reference import distribution

EOS = 1
SHAPE: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "eos_token_id": EOS,
    "bos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.5,
}


@pytest.fixture(autouse=True, scope="module")
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def _build(kind: str = "qwen2", seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    shape = SHAPE | changes
    model = LlamaForCausalLM(LlamaConfig(**shape)) if kind == "llama" else Qwen2ForCausalLM(Qwen2Config(**shape))
    return model.eval()


def _byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, from 2 on; 0 pads and 1 ends."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {"<pad>": 0, "</s>": EOS} | {char: i for i, char in enumerate(alphabet, start=2)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>")


@asynccontextmanager
async def _serve(
    directory: Path, *, dtype: str = "float32", rows: int = 8, **options: Any
) -> AsyncIterator[TorchEngine]:
    context = EngineContext(
        model=directory, dtype=dtype, place=Place(), seed=0, max_concurrent=rows, interruptible=True, work=directory
    )
    engine = TorchEngine(TorchEngineOptions(**options), context)
    await engine.start(WeightVersion(0, 0))
    try:
        yield engine
    finally:
        await engine.close()


def _request(tokens: Any, *, name: str = "r", n: int = 1, seed: int = 0, **sampling: Any) -> GenerateRequest:
    settings = {"max_new_tokens": 8, "ignore_eos": True} | sampling
    return GenerateRequest(name, np.asarray(tokens, dtype=np.int32), Sampling(**settings), n, seed)


async def _collect(engine: TorchEngine, request: GenerateRequest) -> list[Completion]:
    """All completions, in the order of their index."""
    return sorted([c async for c in engine.generate(request)], key=lambda c: c.index)


def _logits(model: Any, prompt: Any, answer: Any) -> np.ndarray:
    """[T, V] float64: what a plain forward pass of the whole sequence predicts each answer token from."""
    tokens = torch.tensor([[*prompt, *answer]], dtype=torch.int64)
    return model(tokens, use_cache=False).logits[0, len(prompt) - 1 : -1].double().numpy()


@pytest.fixture(scope="session")
def tools() -> SimpleNamespace:
    """`build`, `serve`, `request`, `collect`, `logits`, `distribution`, `byte_tokenizer`."""
    return SimpleNamespace(
        build=_build,
        serve=_serve,
        request=_request,
        collect=_collect,
        logits=_logits,
        distribution=distribution,
        byte_tokenizer=_byte_tokenizer,
    )


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A tiny Qwen2 and the directory it is saved in."""
    return _saved(tmp_path_factory, "qwen2")


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A tiny Llama with untied embeddings, and its directory."""
    return _saved(tmp_path_factory, "llama", tie_word_embeddings=False)


@pytest.fixture(scope="session")
def speaker(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A tiny Qwen2 over bytes, with its tokenizer."""
    model, directory = _saved(tmp_path_factory, "qwen2", vocab_size=258)
    _byte_tokenizer().save_pretrained(directory)
    return model, directory


def _saved(factory: pytest.TempPathFactory, kind: str, **changes: Any) -> tuple[Any, Path]:
    model, directory = _build(kind, **changes), factory.mktemp(kind)
    model.save_pretrained(directory)
    return model, directory
