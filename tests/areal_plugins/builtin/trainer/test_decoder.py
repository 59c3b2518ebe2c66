"""The short way through Llama-like decoders against transformers' own modules."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from areal_plugins.builtin.trainer import attention, decoder
from areal_plugins.builtin.trainer.micro import place
from areal_plugins.builtin.trainer.packing import pack, split
from areal_plugins.builtin.trainer.units import flatten


def passes(tools, kind, dtype, **changes):
    """Hidden states and gradients by both ways, from the same weights."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tools.config(kind, **changes), attn_implementation=attention.NAME)
    backbone = model.to(dtype).base_model
    units = flatten(tools.random_batch(np.random.default_rng(1)))
    (pieces,) = split(units, np.ones(len(units.starts), dtype=bool), 10**6)
    micro = place(pack(units, pieces), torch.device("cpu"))
    ways = (
        lambda: decoder.decode(backbone, micro.tokens, micro.positions, micro.grid),
        lambda: backbone(micro.tokens, position_ids=micro.positions, use_cache=False, grid=micro.grid)[0][0],
    )
    for way in ways:
        backbone.zero_grad()
        hidden = way()
        slope = torch.linspace(-1, 1, hidden.numel(), dtype=dtype).view_as(hidden)
        (hidden * slope).sum().backward()
        yield hidden.detach(), [p.grad.clone() for p in backbone.parameters()]


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_it_computes_what_transformers_computes(tools, kind):
    (ours, our_grads), (theirs, their_grads) = passes(tools, kind, torch.float32)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    for mine, other in zip(our_grads, their_grads, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def test_half_precision_weights_go_through_it(tools):
    (ours, _), (theirs, _) = passes(tools, "qwen2", torch.bfloat16)
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1)


def test_other_activations_and_families_are_left_to_transformers(tools):
    gelu = AutoModelForCausalLM.from_config(tools.config("llama", hidden_act="gelu")).base_model
    other = AutoModelForCausalLM.from_config(tools.config("mistral")).base_model
    assert not decoder.is_known(gelu)
    assert not decoder.is_known(other)
