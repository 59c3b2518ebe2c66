import asyncio
from types import SimpleNamespace

import pytest
import torch
import transformers

from areal_plugins import InputError
from areal_plugins.builtin.engine import loading, probe
from areal_plugins.builtin.engine.kv_cache import KVCache
from areal_plugins.builtin.engine.runner import Runner

CPU = torch.device("cpu")
SMALL = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
SERVED = {
    "Qwen2Config": {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1},
    "Qwen3Config": {},
    "MistralConfig": {"sliding_window": 3},
    "Gemma2Config": {"sliding_window": 3},
    "GptOssConfig": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 4},
    "GPTNeoXConfig": {},
}


def saved(directory, config: str, **changes):
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**SMALL, **changes)).save_pretrained(
        directory
    )
    return directory


def proven(directory) -> Runner:
    runner = Runner(loading.load_model(directory, torch.float32, CPU), KVCache(torch.float32, CPU), 32)
    probe.check(runner, str(directory))
    return runner


@pytest.mark.parametrize(("config", "changes"), SERVED.items(), ids=SERVED)
def test_models_of_plain_attention_are_served(config, changes, tmp_path):
    assert proven(saved(tmp_path, config, **changes)).cache.token_bytes > 0


def test_a_model_whose_attention_cannot_be_replaced_is_refused(tmp_path):
    saved(tmp_path, "BloomConfig", n_layer=2, n_head=4)
    with pytest.raises(InputError, match="BloomForCausalLM cannot be replaced"):
        loading.load_model(tmp_path, torch.float32, CPU)


def test_a_model_with_a_state_beside_the_cache_is_refused(tmp_path):
    saved(tmp_path, "Lfm2Config", layer_types=["conv", "full_attention"])
    with pytest.raises(InputError, match="Lfm2ForCausalLM computes other logits"):
        proven(tmp_path)


def test_an_attention_that_computes_something_else_is_found_out(qwen, monkeypatch):
    runner = Runner(loading.load_model(qwen[1], torch.float32, CPU), KVCache(torch.float32, CPU), 32)
    monkeypatch.setattr(runner.cache, "slots", lambda rows, positions, heads: torch.zeros(len(rows) * heads).long())
    with pytest.raises(InputError, match="other logits"):
        probe.check(runner, "here")


def test_a_window_that_layers_keep_to_themselves_is_found_out(tmp_path):
    model = loading.load_model(saved(tmp_path, "MistralConfig", sliding_window=30), torch.float32, CPU)
    model.config.sliding_window = None
    runner = Runner(model, KVCache(torch.float32, CPU), 32)
    probe.check(runner, "here")
    model.config.sliding_window = 30
    runner.windows = {0: 30, 1: None}
    with pytest.raises(
        InputError, match="MistralForCausalLM does not tell its attention the sliding window of layer 1"
    ):
        probe._check_windows(runner, "here")


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: it has no config\.json"):
        loading.load_model(tmp_path / "nowhere", torch.float32, CPU)


def test_a_directory_without_weights_is_named(tmp_path):
    transformers.Qwen2Config(**SMALL).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no causal language model loads from it"):
        loading.load_model(tmp_path, torch.float32, CPU)


def model_of(**config):
    text = SimpleNamespace(**({"eos_token_id": None} | config))
    return SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: text), generation_config=None)


def test_the_longest_sequence_is_the_models_own():
    assert loading.longest_sequence(model_of(max_position_embeddings=64), None, "m") == 64


def test_a_shorter_longest_sequence_may_be_asked_for():
    assert loading.longest_sequence(model_of(max_position_embeddings=64), 32, "m") == 32


def test_more_positions_than_the_model_has_are_refused():
    with pytest.raises(InputError, match="max_model_len 65 is more than the 64 positions"):
        loading.longest_sequence(model_of(max_position_embeddings=64), 65, "m")


def test_a_model_that_does_not_tell_its_positions_needs_a_limit():
    assert loading.longest_sequence(model_of(), 32, "m") == 32
    with pytest.raises(InputError, match="set max_model_len"):
        loading.longest_sequence(model_of(), None, "m")


def test_positions_that_change_with_the_longest_of_a_batch_are_not_reached():
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 16}
    model = model_of(max_position_embeddings=64, rope_parameters=rope)
    assert loading.longest_sequence(model, None, "m") == 16
    with pytest.raises(InputError, match="more than the 16 positions"):
        loading.longest_sequence(model, 64, "m")


def test_chunked_attention_is_served_within_a_chunk():
    assert loading.longest_sequence(model_of(max_position_embeddings=64, attention_chunk_size=8), None, "m") == 8


def test_every_end_that_anything_names_ends_an_answer():
    model = model_of(eos_token_id=[2, 5])
    model.generation_config = SimpleNamespace(eos_token_id=7)
    assert loading.end_ids(model, SimpleNamespace(eos_token_id=5)) == (2, 5, 7)
    assert loading.end_ids(model_of(), None) == ()


def test_a_model_without_tokenizer_answers_without_text(qwen, tools):
    async def main():
        async with tools.serve(qwen[1]) as engine:
            return await tools.collect(engine, tools.request([5]))

    assert asyncio.run(main())[0].text == ""
