"""The estimate of memory a device."""

from __future__ import annotations

import json

import pytest


def test_training_holds_weights_gradients_and_two_moments(explained):
    plan = explained()["memory"]
    assert plan["known_by"] == "the model itself"
    assert plan["train"]["weights"] == 4 * plan["parameters"]
    assert plan["train"]["gradients"] == 4 * plan["parameters"]
    assert plan["train"]["optimizer"] == 8 * plan["parameters"]
    assert plan["train_total"] == sum(plan["train"].values())


def test_a_short_format_halves_the_weights(explained):
    full, half = explained()["memory"], explained("model.dtype=bfloat16")["memory"]
    assert half["infer"]["weights"] == full["infer"]["weights"] // 2
    assert half["infer"]["kv cache"] == full["infer"]["kv cache"] // 2


def test_adapters_have_no_gradients_and_moments_of_the_weights(explained):
    train = explained("model.lora={rank: 4}")["memory"]["train"]
    assert (train["gradients"], train["optimizer"]) == (0, 0)


def test_a_reference_and_a_critic_are_counted(explained):
    train = explained("objective={type: ppo, group_size: 4, kl: 0.1, reference: {}}")["memory"]["train"]
    assert train["reference"] == train["weights"]
    assert train["critic"] == 4 * train["weights"]


def test_the_kv_cache_is_that_of_all_running_sequences(explained):
    infer = explained("inference.max_concurrent=10", "inference.torch.max_model_len=100")["memory"]["infer"]
    assert infer["kv cache"] == 2 * 2 * 64 * 4 * 10 * 100  # keys and values, layers, width, bytes, tokens
    limited = explained("inference.torch.kv_tokens=50")["memory"]["infer"]
    assert limited["kv cache"] == 2 * 2 * 64 * 4 * 50


def test_activations_follow_the_micro_batch_and_checkpointing_lowers_them(explained):
    some = explained("training.micro_batch_tokens=100")["memory"]["train"]["activations"]
    more = explained("training.micro_batch_tokens=200")["memory"]["train"]["activations"]
    less = explained("training.micro_batch_tokens=100", "training.activation_checkpointing=true")["memory"]["train"]
    assert more == 2 * some
    assert less["activations"] < some


def test_activations_are_not_known_where_the_device_decides(explained):
    assert explained("platform=cuda")["memory"]["train"]["activations"] is None


def test_tensor_parallelism_splits_and_data_parallelism_replicates(explained):
    plan = explained("resources.infer={num_gpus: 4, parallel: {dp: 2, tp: 2}}")["memory"]
    assert plan["infer"]["weights"] == 2 * plan["parameters"]
    sharded = explained("training.backend=fsdp2", "resources.train={num_gpus: 4, parallel: dp}")["memory"]
    assert sharded["train"]["weights"] == plan["parameters"]


@pytest.mark.parametrize(
    ("path", "parameters"),
    [("Qwen/Qwen3-0.6B", 600_000_000), ("org/SmolLM2-135M-Instruct", 135_000_000), ("org/llama-7b", 7 * 10**9)],
)
def test_a_name_says_how_large_a_model_is_that_is_not_here(explained, path, parameters):
    plan = explained(f"model={{type: hf, path: {path}}}")["memory"]
    assert (plan["parameters"], plan["known_by"]) == (parameters, "its name")
    assert plan["infer"]["kv cache"] is None


def test_a_model_without_a_telling_name_has_no_plan(explained):
    assert explained("model={type: hf, path: org/v2.5-model}")["memory"] is None


def test_a_directory_says_its_sizes(explained, tmp_path):
    (tmp_path / "m-1B").mkdir()
    config = {
        "num_hidden_layers": 3,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
    }
    (tmp_path / "m-1B" / "config.json").write_text(json.dumps(config))
    infer = explained("model={type: hf, path: ./m-1B}", "inference.max_concurrent=2")["memory"]["infer"]
    assert infer["kv cache"] == 2 * 3 * 16 * 4 * 2 * 128
