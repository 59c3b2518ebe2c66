import json
import shutil

import numpy as np
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_model_loads_as_it_is(build, tools, model_dir, tmp_path, kind, tied):
    trainer = build(model_dir(kind, tie_word_embeddings=tied))
    trainer.begin_stage(tools.stage())
    trainer.train(tools.random_batch(np.random.default_rng(0)))
    trainer.save_model(tmp_path / "m")()
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    state = model.state_dict()
    for name, value in trainer.weights():
        assert torch.equal(state[name], value)


@pytest.mark.parametrize("tied", [False, True])
def test_weights_are_named_as_checkpoints_name_them(build, model_dir, tied):
    directory = model_dir("qwen2", tie_word_embeddings=tied)
    with safe_open(directory / "model.safetensors", "pt") as file:
        assert {name for name, _ in build(directory).weights()} == set(file.keys())


def test_the_order_of_weights_is_stable(build, tools):
    trainer = build()
    first = [name for name, _ in trainer.weights()]
    trainer.begin_stage(tools.stage())
    trainer.train(tools.random_batch(np.random.default_rng(0)))
    assert [name for name, _ in trainer.weights()] == first


def test_all_else_that_the_source_holds_comes_along(build, model_dir, tmp_path):
    source = tmp_path / "source"
    shutil.copytree(model_dir(), source)
    (source / "tokenizer.json").write_text("{}")
    (source / "model.safetensors.index.json").write_text("{}")
    build(source).save_model(tmp_path / "m")()
    names = {file.name for file in (tmp_path / "m").iterdir()}
    assert "tokenizer.json" in names
    assert "model.safetensors.index.json" not in names


def test_the_config_does_not_name_our_attention(build, tmp_path):
    build().save_model(tmp_path / "m")()
    assert "areal" not in json.dumps(json.loads((tmp_path / "m" / "config.json").read_text()))


def test_the_config_says_in_which_format_weights_are_saved(build, model_dir, tmp_path):
    source = tmp_path / "source"
    AutoModelForCausalLM.from_pretrained(model_dir(), dtype=torch.bfloat16).save_pretrained(source)
    build(source, dtype="float32").save_model(tmp_path / "m")()
    assert json.loads((tmp_path / "m" / "config.json").read_text())["dtype"] == "float32"


def test_experts_are_saved_under_the_names_of_checkpoints(tools, model_dir, build):
    directory = model_dir("qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    with safe_open(directory / "model.safetensors", "pt") as file:
        known = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    weights = dict(build(directory).weights())
    assert weights.keys() == known.keys()
    assert all(torch.equal(known[name], value) for name, value in weights.items())


def test_loading_and_saving_show_no_progress_bar(build, tmp_path, capfd):
    build().save_model(tmp_path / "m")()
    assert "%|" not in capfd.readouterr().err
