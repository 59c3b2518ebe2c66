import asyncio
from typing import Any

import pytest
import torch

from areal_core.data import WeightVersion
from areal_plugins.builtin.engine.product import Product, prepack

LARGE = {"vocab_size": 9000, "hidden_size": 64, "tie_word_embeddings": True}


class Source:
    mechanism = "tensors"

    def __init__(self, model: Any) -> None:
        self.tensors = model.named_parameters


def large(bias: bool = False) -> Product:
    return Product(torch.randn(512, 1024) / 32, torch.randn(512) if bias else None)


@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_product_is_the_same_product(bias):
    product, x = large(bias), torch.randn(2, 3, 1024)
    expected = torch.nn.functional.linear(x, product.weight, product.bias)
    torch.testing.assert_close(product(x), expected, rtol=1e-4, atol=1e-4)
    product.pack()
    torch.testing.assert_close(product(x), expected, rtol=1e-4, atol=1e-4)


def test_copies_take_a_quarter_of_the_free_memory_at_most():
    product = large()
    assert prepack([product], 4 * product.weight.nbytes) == [product]
    assert prepack([product], 4 * product.weight.nbytes - 1) == []
    assert prepack([product], None) == []


def test_small_weights_and_other_formats_are_left_alone():
    assert prepack([Product(torch.randn(64, 64)), Product(torch.randn(512, 1024).double())], 1 << 40) == []


@pytest.mark.parametrize("family", ["Qwen2ForCausalLM", "none"])
def test_new_weights_are_packed_anew(family, tools, tmp_path, monkeypatch):
    monkeypatch.setattr("areal_plugins.builtin.engine.runner.FAMILY", (family,))
    model, other = tools.build(**LARGE), tools.build(seed=1, **LARGE)
    model.save_pretrained(tmp_path)

    async def main():
        async with tools.serve(tmp_path) as engine:
            await engine.pause(True)
            await engine.load_weights(Source(other), WeightVersion(0, 1))
            await engine.resume()
            return await tools.collect(engine, tools.request([5, 6], temperature=0.0))

    (answer,) = asyncio.run(main())
    assert answer.tokens.tolist() == tools.logits(other, [5, 6], answer.tokens).argmax(axis=1).tolist()
