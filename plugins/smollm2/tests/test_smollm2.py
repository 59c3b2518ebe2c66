"""The real model: converts it once (about 45 s of one core, 1.2 GB) and asks it something."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from areal_plugin_smollm2 import INSTALL, PACKAGE, Smollm2Options, check_smollm2
from areal_plugin_smollm2.source import GgufSource, smollm2

from areal_plugins import CheckContext, data, protocols

pytestmark = pytest.mark.skipif(find_spec(PACKAGE) is None, reason=f"the weights are not installed: {INSTALL}")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> GgufSource:
    folder = tmp_path_factory.mktemp("smollm2")
    return smollm2(Smollm2Options(), protocols.ModelContext(cache=folder / "cache", work=folder / "work", seed=0))


@pytest.fixture(scope="module")
def directory(source: GgufSource) -> Path:
    return source.materialize()


def test_check_finds_the_weights() -> None:
    assert list(check_smollm2(CheckContext(None, Smollm2Options(), ("model",)))) == []


def test_its_chat_template_is_kept(source: GgufSource, directory: Path) -> None:
    prompt = source.tokenizer(directory).render([data.Message("system", "Be brief."), data.Message("user", "Hi")])
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_it_knows_the_capital_of_france(source: GgufSource, directory: Path) -> None:
    from transformers import AutoModelForCausalLM

    tokenizer = source.tokenizer(directory)
    prompt = tokenizer.encode(tokenizer.render([data.Message("user", "What is the capital of France?")]))
    model = AutoModelForCausalLM.from_pretrained(directory)
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    answer = model.generate(torch.tensor([prompt]), max_new_tokens=16, do_sample=False)[0, len(prompt) :]
    assert "Paris" in tokenizer.decode(answer.tolist())
