import asyncio
from typing import Any

import torch

from areal_core.data import WeightVersion
from areal_plugins.builtin.engine.prepacked import prepack

LARGE = {"vocab_size": 9000, "hidden_size": 64, "tie_word_embeddings": True}


class Source:
    mechanism = "tensors"

    def __init__(self, model: Any) -> None:
        self.tensors = model.named_parameters


def test_a_large_layer_computes_what_it_did(tools):
    model = tools.build(**LARGE)
    x = torch.randn(1, 5, 64)
    expected = model.lm_head(x)
    packed = prepack(model, 1 << 40)
    assert packed.layers == [model.lm_head]
    torch.testing.assert_close(model.lm_head(x), expected)


def test_a_layer_with_a_bias_keeps_it():
    layer = torch.nn.Linear(1024, 512)
    x = torch.randn(3, 1024)
    expected = layer(x)
    prepack(torch.nn.Sequential(layer), 1 << 40)
    torch.testing.assert_close(layer(x), expected)


def test_copies_take_a_quarter_of_the_free_memory_at_most():
    model = torch.nn.Sequential(torch.nn.Linear(1024, 512))
    assert prepack(model, 4 * model[0].weight.nbytes).layers
    assert not prepack(model, 4 * model[0].weight.nbytes - 1).layers


def test_small_layers_and_other_formats_are_left_alone():
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(1024, 512).double())
    assert not prepack(model, 1 << 40).layers


def test_new_weights_are_packed_anew(tools, tmp_path):
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
