import json

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from areal_core.contexts import LoraPlan, ObjectiveContext
from areal_plugins import InputError
from areal_plugins.builtin.objectives.grpo import grpo
from areal_plugins.builtin.objectives.options import GrpoOptions
from areal_plugins.builtin.trainer.packing import pack, split
from areal_plugins.builtin.trainer.scoring import with_models
from areal_plugins.builtin.trainer.units import flatten


@pytest.fixture
def trained(build, tools):
    """A trainer whose adapters have moved."""

    def make(**plan):
        trainer = build(lora=LoraPlan(**({"rank": 4, "alpha": 8.0} | plan)))
        trainer.begin_stage(tools.stage())
        for seed in range(2):
            trainer.train(tools.random_batch(np.random.default_rng(seed)))
        return trainer

    return make


def plain(model_dir):
    return dict(AutoModelForCausalLM.from_pretrained(model_dir()).named_parameters())


def test_only_adapters_are_trained(trained, model_dir):
    trainer = trained()
    before = plain(model_dir)
    for name, parameter in trainer._policy.model.named_parameters():
        assert parameter.requires_grad == ("lora_" in name)
        if "lora_" not in name:
            assert torch.equal(parameter, before[name.replace(".base_layer", "")])


def test_all_linear_layers_but_the_output_get_adapters_when_none_are_named(trained):
    names = {name for name, module in trained()._policy.model.named_modules() if hasattr(module, "lora_A")}
    kinds = {name.rsplit(".", 1)[-1] for name in names}
    assert kinds == {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def test_weights_have_plain_names_and_hold_the_adapters(trained, model_dir, tools):
    trainer = trained(targets=("q_proj", "mlp.up_proj"))
    before, weights = plain(model_dir), dict(trainer.weights())
    assert list(weights) == list(before)
    moved = {name for name in weights if not torch.equal(weights[name], before[name])}
    assert moved == {n for n in before if "q_proj.weight" in n or "up_proj" in n}


def test_merged_weights_compute_what_the_trainer_computes(trained, tools, tmp_path):
    trainer = trained()
    tokens = np.array([1, 2, 3, 4, 5])
    trainer.save_model(tmp_path / "m")()
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "m")
    batch = tools.batch([[tools.trajectory(tokens[:1], tokens[1:])]])
    seen = trainer.train(batch)["mismatch"]
    expected = (tools.plain_logp(model, tokens) + 1.5).abs().mean().item()
    assert seen == pytest.approx(expected, rel=1e-4)


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft asks by the old name
def test_the_adapter_alone_can_be_put_on_the_base_model(trained, model_dir, tmp_path):
    trainer = trained()
    trainer.save_model(tmp_path / "m")()
    base = AutoModelForCausalLM.from_pretrained(model_dir())
    merged = PeftModel.from_pretrained(base, tmp_path / "m" / "adapter").merge_and_unload()
    for name, value in trainer.weights():
        torch.testing.assert_close(merged.state_dict()[name], value)
    config = json.loads((tmp_path / "m" / "adapter" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(model_dir())


def test_a_target_that_names_nothing_is_refused(build):
    with pytest.raises(InputError, match="'query' names no linear layer") as refusal:
        build(lora=LoraPlan(4, 8.0, targets=("q_proj", "query")))
    assert "q_proj" in refusal.value.way_out


def test_the_seed_fixes_the_random_start(build):
    def start(seed):
        return dict(build(lora=LoraPlan(4, 8.0), seed=seed)._policy.trainable)

    first, same, other = start(1), start(1), start(2)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_dropout_draws_from_the_trainers_own_stream(trained):
    first = dict(trained(dropout=0.5).weights())
    torch.rand(3)
    second = dict(trained(dropout=0.5).weights())
    without = dict(trained().weights())
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], without[name]) for name in first)


def test_the_reference_is_the_model_without_what_was_learned(build, tools, model_dir):

    trainer = build(lora=LoraPlan(4, 8.0))
    trainer.begin_stage(tools.stage(grpo(GrpoOptions(kl=0.1), ObjectiveContext(1.0, 8, 12, 4))))
    trainer.train(tools.random_batch(np.random.default_rng(0)))
    tokens = np.array([1, 2, 3, 4, 5])
    units = flatten(tools.batch([[tools.trajectory(tokens[:1], tokens[1:])]]))
    packed = [pack(units, pieces) for pieces in split(units, np.ones(1, dtype=bool), 100)]
    reference = with_models(trainer._policy, trainer._stage, units, packed).reference
    model = AutoModelForCausalLM.from_pretrained(model_dir())
    np.testing.assert_allclose(reference, tools.plain_logp(model, tokens).detach(), rtol=1e-4)
