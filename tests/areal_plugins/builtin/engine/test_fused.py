import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from areal_plugins.builtin.engine import loading
from areal_plugins.builtin.engine.attention import Chunk
from areal_plugins.builtin.engine.fused import FusedDecoder, join
from areal_plugins.builtin.engine.kv_cache import KVCache
from areal_plugins.builtin.engine.plan import Plan
from areal_plugins.builtin.engine.runner import Runner

CASES = {
    "llama": {},
    "llama with biases": {"attention_bias": True, "mlp_bias": True},
    "llama with scaled positions": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    },
    "qwen2": {},
    "qwen2 with a window": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "qwen3": {"head_dim": 16},
}


def model_of(case: str, tools):
    kind = case.split()[0]
    if kind != "qwen3":
        return tools.build(kind, **CASES[case])
    torch.manual_seed(0)
    shape = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 48, "initializer_range": 0.5, "pad_token_id": None}
    return Qwen3ForCausalLM(Qwen3Config(**shape, **CASES[case])).eval()


def whole(tokens: np.ndarray) -> Plan:
    """One prompt, all at once."""
    every = np.arange(len(tokens))
    zeros = np.zeros(len(tokens), dtype=np.int64)
    return Plan(tokens, every, zeros, (), [Chunk(0, 0, 0, len(tokens))], every, every, every)


@pytest.mark.parametrize("case", CASES)
def test_it_computes_what_transformers_does(case, tools, tmp_path):
    model = model_of(case, tools)
    for parameter in model.parameters():
        if parameter.ndim == 1:
            parameter.normal_(1.0, 0.3)
    tokens = np.arange(20) * 7 % 61
    expected = model(torch.from_numpy(tokens)[None], use_cache=False).logits[0]
    loading.replace_attention(model, tmp_path)
    cache = KVCache(torch.float32, torch.device("cpu"))
    cache.resize(1, 20)
    runner = Runner(model, cache, 32)
    assert runner._fused is not None
    torch.testing.assert_close(runner.logits(whole(tokens)), expected, rtol=1e-3, atol=1e-4)


def test_joined_layers_see_new_weights_and_are_seen():
    layers = [torch.nn.Linear(4, n) for n in (3, 2)]
    x = torch.randn(5, 4)
    product = join(*layers)
    torch.testing.assert_close(product(x), torch.cat([layer(x) for layer in layers], dim=1))
    layers[1].weight.copy_(torch.ones(2, 4))
    layers[1].bias.copy_(torch.zeros(2))
    torch.testing.assert_close(product(x)[:, 3:], x.sum(1, keepdim=True).expand(-1, 2))


def test_all_weights_of_a_layer_are_used(tools):
    decoder = FusedDecoder(tools.build("qwen2"), 8)
    sizes = sum(product.weight.numel() for product in decoder.products)
    assert sizes == sum(
        p.numel() for n, p in tools.build("qwen2").named_parameters() if "proj.weight" in n or "lm_head" in n
    )
