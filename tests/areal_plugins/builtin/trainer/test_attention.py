"""Packed attention against transformers' own, one sequence at a time."""

import copy

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from areal_plugins.builtin.trainer import attention
from areal_plugins.builtin.trainer.micro import place
from areal_plugins.builtin.trainer.packing import pack, split
from areal_plugins.builtin.trainer.policy import Policy
from areal_plugins.builtin.trainer.units import flatten

ARCHITECTURES = {
    "qwen2": {},
    "llama": {"tie_word_embeddings": True},
    "llama-mha": {"num_key_value_heads": 4},
    "llama-mqa": {"num_key_value_heads": 1},
    "qwen2-window": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "qwen3": {},
    "mistral": {"sliding_window": 4},
    "gemma2": {"sliding_window": 4, "query_pre_attn_scalar": 11, "final_logit_softcapping": 3.0},
    "gemma3_text": {"sliding_window": 4},
    "granite": {"logits_scaling": 2.0, "residual_multiplier": 0.7, "attention_multiplier": 0.3},
    "cohere": {"logit_scale": 0.5},
}

SOFTCAPPED = {"gemma2"}  # only transformers' eager attention does it


@pytest.fixture
def exact(monkeypatch):
    """Norms and softmaxes that transformers always computes in float32 stay in float64."""
    to, softmax = torch.Tensor.to, torch.nn.functional.softmax

    def keep(tensor, *args, **kwargs):
        narrowing = tensor.dtype == torch.float64 and args == (torch.float32,)
        return tensor if narrowing else to(tensor, *args, **kwargs)

    def keep_softmax(tensor, *args, dtype=None, **kwargs):
        return softmax(tensor, *args, dtype=None if tensor.dtype == torch.float64 else dtype, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", keep)
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: keep(tensor, torch.float32))
    monkeypatch.setattr(torch.nn.functional, "softmax", keep_softmax)


def both(tools, kind, dtype):
    """The model through packed attention, and the same weights through transformers' own."""
    torch.manual_seed(0)
    config = tools.config(kind.partition("-")[0], **ARCHITECTURES[kind])
    plainly = "eager" if kind in SOFTCAPPED else "sdpa"
    packed = AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=attention.NAME).to(dtype)
    plain = AutoModelForCausalLM.from_config(config, attn_implementation=plainly).to(dtype)
    plain.load_state_dict(packed.state_dict())
    return packed.eval(), plain.eval()


def compare(tools, kind, dtype, batch, temperature=0.7):
    """Largest difference of log-probabilities, and of gradients relative to the largest, of a weighted sum."""
    packed_model, plain_model = both(tools, kind, dtype)
    units = flatten(batch)
    (pieces,) = split(units, np.ones(len(units.starts), dtype=bool), 10**6)
    packed = pack(units, pieces)
    logp, _ = Policy(packed_model, dtype, 1 << 20).score(place(packed, torch.device("cpu")), temperature)
    weights = torch.linspace(-1, 1, len(logp), dtype=dtype)
    (logp * weights).sum().backward()

    plain = torch.zeros(len(units.arrays.mask), dtype=dtype)
    for s, trajectory in enumerate(batch.trajectories):
        scored = tools.plain_logp(plain_model, trajectory.columns["tokens"], temperature)
        own = units.owner == s
        plain[units.trained[own]] = scored[units.position[own] - 1]
    plain = plain[packed.units]
    (plain * weights).sum().backward()

    pairs = list(zip(packed_model.parameters(), plain_model.parameters(), strict=True))
    scale = max(b.grad.abs().max() for _, b in pairs)
    return (logp - plain).abs().max().item(), max((a.grad - b.grad).abs().max() / scale for a, b in pairs).item()


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_packed_gradients_are_the_plain_ones_in_float64(tools, kind, exact):
    forward, backward = compare(tools, kind, torch.float64, tools.random_batch(np.random.default_rng(1)))
    assert forward < 1e-10
    assert backward < 1e-10


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
def test_packed_gradients_are_the_plain_ones_in_float32(tools, kind):
    forward, backward = compare(tools, kind, torch.float32, tools.random_batch(np.random.default_rng(2)))
    assert forward < 1e-5
    assert backward < 1e-5


@pytest.mark.parametrize("kind", ["qwen2", "mistral"])
def test_the_fused_kernel_gives_the_same(tools, kind, monkeypatch, exact):
    monkeypatch.setattr(attention, "_SMALL", 0)
    forward, backward = compare(tools, kind, torch.float64, tools.random_batch(np.random.default_rng(3)))
    assert forward < 1e-10
    assert backward < 1e-10


def test_single_sequences_need_no_common_part(tools, exact):
    batch = tools.random_batch(np.random.default_rng(4), groups=5, members=1)
    forward, backward = compare(tools, "llama", torch.float64, batch)
    assert forward < 1e-10
    assert backward < 1e-10


def test_groups_of_different_sizes_lie_side_by_side(tools, exact):
    rng = np.random.default_rng(5)
    groups = [tools.random_batch(rng, groups=1, members=n).groups[0].trajectories for n in (1, 5, 3)]
    forward, backward = compare(tools, "qwen2", torch.float64, tools.batch(groups))
    assert forward < 1e-10
    assert backward < 1e-10


def test_identical_answers_are_computed_once(tools, exact):
    prompt, answer = [1, 2, 3], [4, 5, 6, 7]
    batch = tools.batch([[tools.trajectory(prompt, answer, member=m) for m in range(3)]])
    units = flatten(batch)
    (pieces,) = split(units, np.ones(3, dtype=bool), 10**6)
    assert len(pack(units, pieces).tokens) == len(prompt) + len(answer) - 1
    forward, backward = compare(tools, "qwen2", torch.float64, batch)
    assert forward < 1e-10
    assert backward < 1e-10


def test_a_model_that_drops_keywords_is_refused():
    with pytest.raises(ValueError, match="does not hand keywords on"):
        attention.packed_attention(torch.nn.Module(), *[torch.zeros(1, 1, 2, 4)] * 3, None)


def test_attention_sinks_are_refused(tools):
    model = AutoModelForCausalLM.from_config(
        tools.config("gpt_oss", num_local_experts=2, num_experts_per_tok=1), attn_implementation=attention.NAME
    )
    units = flatten(tools.random_batch(np.random.default_rng(6)))
    (pieces,) = split(units, np.ones(len(units.starts), dtype=bool), 10**6)
    with pytest.raises(ValueError, match="s_aux"):
        Policy(model, torch.float32, 0).score(place(pack(units, pieces), torch.device("cpu")), 1.0)
