import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from areal_core.contexts import Place, TrainerContext
from areal_plugins import InputError
from areal_plugins.builtin.trainer import model as module
from areal_plugins.builtin.trainer import trainer as trainer_module
from areal_plugins.builtin.trainer.trainer import formats


@pytest.fixture
def copied(model_dir, tmp_path):
    target = tmp_path / "model"
    shutil.copytree(model_dir(), target)
    return target


def test_a_directory_without_a_model_is_named(build, tmp_path):
    with pytest.raises(InputError, match=r"it has no config\.json"):
        build(tmp_path / "nowhere")


def test_missing_weights_are_named(build, copied):
    (copied / "model.safetensors").unlink()
    with pytest.raises(InputError, match="the model cannot be loaded"):
        build(copied)


def test_a_missing_tensor_is_named(build, copied):
    tensors = load_file(copied / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, copied / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"weights are missing: model\.norm\.weight"):
        build(copied)


def test_a_damaged_file_is_named(build, copied):
    (copied / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="the model cannot be loaded"):
        build(copied)


def test_an_unknown_architecture_is_named(build, copied):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"model_type": "perceptron"}))
    with pytest.raises(InputError, match="perceptron"):
        build(copied)


def test_layers_with_a_state_of_their_own_are_refused(build, model_dir):
    directory = model_dir("lfm2", layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)
    with pytest.raises(InputError, match="layers of the kinds conv cannot be packed"):
        build(directory)


def test_attention_that_cannot_be_replaced_is_refused(build, model_dir):
    with pytest.raises(InputError, match="BloomForCausalLM has no pluggable attention"):
        build(model_dir("bloom", n_layer=1, n_head=4))


def test_a_model_that_leaks_between_packed_sequences_is_refused(build, monkeypatch):
    plain = module.read

    def leaking(backbone, micro, under):
        hidden = plain(backbone, micro, under)
        return hidden + 0.01 * hidden.roll(1, 0)

    monkeypatch.setattr(module, "read", leaking)
    with pytest.raises(InputError, match="reads packed sequences differently"):
        build()


def test_logits_of_the_models_own_making_are_refused(build, monkeypatch):
    plain = AutoModelForCausalLM.from_pretrained

    def scale(model, args, out):
        out.logits = out.logits * 1.5

    def scaled(*args, **kwargs):
        model, report = plain(*args, **kwargs)
        model.register_forward_hook(scale)
        return model, report

    monkeypatch.setattr(module.AutoModelForCausalLM, "from_pretrained", scaled)
    with pytest.raises(InputError, match="computes logits in a way of its own"):
        build()


def test_the_models_own_dropout_is_left_out(build, model_dir, tools):
    directory = model_dir("gpt2", n_layer=1, n_head=4, n_embd=32, n_positions=64)
    trainer = build(directory, activation_checkpointing=True)
    trainer.begin_stage(tools.stage())
    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    tokens = np.array([1, 2, 3, 4])
    figures = trainer.train(tools.batch([[tools.trajectory(tokens[:1], tokens[1:])]]))
    assert figures["mismatch"] == pytest.approx((tools.plain_logp(model, tokens) + 1.5).abs().mean().item(), rel=1e-4)


def test_tokens_outside_the_vocabulary_are_named(build, tools):
    trainer = build()
    trainer.begin_stage(tools.stage())
    with pytest.raises(InputError, match="token 99 is not among the model's 13"):
        trainer.train(tools.batch([[tools.trajectory([1], [99])]]))


def test_greedy_sampling_cannot_be_trained_on(build, tools):
    with pytest.raises(InputError, match="greedy answers"):
        build().begin_stage(tools.stage(temperature=0.0))


def test_several_ranks_are_for_other_backends(build):
    with pytest.raises(InputError, match="one rank"):
        build(place=Place(size=2))


@pytest.mark.parametrize(
    ("dtype", "amp", "fast", "expected"),
    [
        ("auto", {}, torch.float32, (torch.float32, torch.float32)),
        ("auto", {}, torch.bfloat16, (torch.float32, torch.bfloat16)),
        ("bfloat16", {}, torch.bfloat16, (torch.bfloat16, torch.bfloat16)),
        ("float32", {"enabled": True, "dtype": "bf16"}, torch.float32, (torch.float32, torch.bfloat16)),
        ("auto", {"enabled": True, "dtype": "fp16"}, torch.bfloat16, (torch.float32, torch.float16)),
        ("float32", {"enabled": False, "dtype": "fp16"}, torch.float32, (torch.float32, torch.float32)),
    ],
)
def test_formats_of_weights_and_of_products(build, monkeypatch, tmp_path, dtype, amp, fast, expected):
    named = {"auto": fast, "bfloat16": torch.bfloat16, "float32": torch.float32}
    monkeypatch.setattr(trainer_module, "resolve_dtype", lambda name, device: named[name])
    assert formats(TrainerContext(tmp_path, dtype, Place(), 0, tmp_path, amp=amp)) == expected


@pytest.mark.parametrize("kind", ["qwen2", "gemma2"])
@pytest.mark.parametrize("amp", ["bf16", "fp16"])
def test_mixed_precision_trains_close_to_full(build, model_dir, tools, kind, amp):
    batch = tools.random_batch(np.random.default_rng(0))

    def figures(**context):
        trainer = build(model_dir(kind), **context)
        trainer.begin_stage(tools.stage())
        return trainer.train(batch)

    full, mixed = figures(), figures(amp={"enabled": True, "dtype": amp, "loss_scale": 64.0})
    assert mixed["skipped"] == 0
    assert mixed["mismatch"] == pytest.approx(full["mismatch"], rel=0.05)
    assert mixed["grad_norm"] == pytest.approx(full["grad_norm"], rel=0.1)


def test_an_overflowing_loss_scale_skips_and_shrinks(build, tools):
    trainer = build(amp={"enabled": True, "dtype": "fp16", "loss_scale": "dynamic"})
    trainer._scale.value = 2.0**60
    trainer.begin_stage(tools.stage())
    batch = tools.random_batch(np.random.default_rng(0))
    assert trainer.train(batch)["skipped"] == 1
    assert trainer._scale.value == 2.0**59


def test_weights_of_another_shape_are_named(build, copied):
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(config | {"intermediate_size": 40}))
    with pytest.raises(InputError, match=r"weights have another shape than config\.json says: .*mlp"):
        build(copied)
