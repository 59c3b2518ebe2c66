import numpy as np
import pytest
import torch
from attrs import evolve

from areal_core.contexts import CriticPlan, LoraPlan, ObjectiveContext
from areal_core.errors import CheckpointError
from areal_plugins import ComponentError
from areal_plugins.builtin.objectives.grpo import grpo
from areal_plugins.builtin.objectives.options import GrpoOptions, PpoOptions
from areal_plugins.builtin.objectives.ppo import ppo

CONTEXT = ObjectiveContext(1.0, 8, 12, 4)

STAGES = {
    "plain": ({}, lambda: grpo(GrpoOptions(), CONTEXT)),
    "reference": ({}, lambda: grpo(GrpoOptions(kl=0.1), CONTEXT)),
    "critic": ({}, lambda: ppo(PpoOptions(), CONTEXT)),
    "adapters": ({"lora": LoraPlan(4, 8.0, dropout=0.3)}, lambda: grpo(GrpoOptions(kl=0.1), CONTEXT)),
}


def begin(build, tools, kind):
    context, objective = STAGES[kind]
    trainer = build(**context)
    plan = {"schedule": "cosine", "warmup_steps": 3, "reference_every": 2, "critic": CriticPlan(1e-2, 1), "updates": 2}
    trainer.begin_stage(tools.stage(objective(), **plan))
    return trainer


def run(trainer, tools, seeds):
    return [trainer.train(tools.random_batch(np.random.default_rng(seed))) for seed in seeds]


@pytest.mark.parametrize("kind", STAGES)
def test_a_resumed_trainer_goes_on_to_the_bit(build, tools, tmp_path, kind):
    whole = begin(build, tools, kind)
    run(whole, tools, range(3))
    whole.save_state(tmp_path)()
    figures = run(whole, tools, range(3, 6))
    torch.rand(5)  # what others draw is nothing to it
    resumed = begin(build, tools, kind)
    resumed.load_state(tmp_path)
    assert run(resumed, tools, range(3, 6)) == figures
    again = dict(resumed.weights())
    assert all(torch.equal(value, again[name]) for name, value in whole.weights())


def test_a_critic_outlasts_a_resume_in_a_stage_that_has_none(build, tools, tmp_path):
    whole = begin(build, tools, "critic")
    run(whole, tools, range(2))
    whole.begin_stage(evolve(tools.stage(STAGES["plain"][1]()), name="rest"))
    whole.save_state(tmp_path)()
    resumed = begin(build, tools, "plain")
    resumed.begin_stage(evolve(tools.stage(STAGES["plain"][1]()), name="rest"))
    resumed.load_state(tmp_path)
    for trainer in (whole, resumed):
        trainer.begin_stage(evolve(tools.stage(STAGES["critic"][1]()), name="again"))
    assert run(resumed, tools, range(2, 4)) == run(whole, tools, range(2, 4))


def test_saving_changes_nothing(build, tools, tmp_path):
    trainer, other = begin(build, tools, "critic"), begin(build, tools, "critic")
    run(trainer, tools, range(2))
    trainer.save_state(tmp_path)()
    assert run(trainer, tools, range(2, 4)) == run(other, tools, range(4))[2:]


def test_files_hold_nothing_that_runs_when_read(build, tools, tmp_path):
    trainer = begin(build, tools, "critic")
    trainer.save_state(tmp_path)()
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {"policy.safetensors", "critic.safetensors", "trainer.pt"}
    torch.load(tmp_path / "trainer.pt", weights_only=True)


def test_a_missing_state_is_named(build, tools, tmp_path):
    with pytest.raises(CheckpointError, match=r"trainer\.pt: it cannot be read"):
        begin(build, tools, "plain").load_state(tmp_path)


@pytest.mark.parametrize("name", ["trainer.pt", "policy.safetensors"])
def test_a_damaged_file_is_named(build, tools, tmp_path, name):
    trainer = begin(build, tools, "plain")
    trainer.save_state(tmp_path)()
    (tmp_path / name).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match=name):
        trainer.load_state(tmp_path)


def test_the_state_of_another_model_is_refused(build, tools, model_dir, tmp_path):
    trainer = begin(build, tools, "plain")
    trainer.save_state(tmp_path)()
    other = build(model_dir("llama", intermediate_size=40))
    other.begin_stage(tools.stage())
    with pytest.raises(CheckpointError, match="of another model"):
        other.load_state(tmp_path)


def test_the_state_of_another_stage_is_refused(build, tools, tmp_path):
    trainer = begin(build, tools, "plain")
    trainer.save_state(tmp_path)()
    trainer.begin_stage(evolve(tools.stage(), name="other"))
    with pytest.raises(CheckpointError, match="saved in stage 's', not in 'other'"):
        trainer.load_state(tmp_path)


def test_nothing_can_be_saved_before_a_stage_begins(build, tmp_path):
    with pytest.raises(ComponentError, match="no stage has begun"):
        build().save_state(tmp_path)()
