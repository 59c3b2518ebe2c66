"""One optimizer step, through the trainer, against the plain computation and against itself cut otherwise."""

import numpy as np
import pytest
import torch
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from areal_core.batch import Targets
from areal_core.contexts import CriticPlan, ObjectiveContext
from areal_plugins.builtin.objectives.grpo import grpo
from areal_plugins.builtin.objectives.gspo import gspo
from areal_plugins.builtin.objectives.options import GrpoOptions, GspoOptions, PpoOptions
from areal_plugins.builtin.objectives.ppo import ppo
from areal_plugins.builtin.trainer import step

CONTEXT = ObjectiveContext(1.0, 8, 12, 4)


@frozen(eq=False)
class PolicyGradient:
    """`-sum w A log p`, and hooks to look inside."""

    seen: list
    needs_entropy: bool = False
    needs_reference: bool = False
    needs_critic: bool = False
    advantage: float | None = None
    broken_at: int = -1

    def keep(self, rewards):
        return True

    def targets(self, arrays):
        self.seen.append(arrays)
        mask = arrays.mask
        value = arrays.rewards[arrays.trajectory] if self.advantage is None else np.full(len(mask), self.advantage)
        weights = mask / mask.sum() if arrays.step != self.broken_at else np.full(len(mask), np.inf)
        return Targets(value * mask, weights, returns=value * mask)

    def loss(self, inputs):
        self.seen.append(inputs)
        loss = -(inputs.weights * inputs.advantages * inputs.logp).sum()
        if inputs.entropy is not None:
            loss = loss - 0.1 * (inputs.weights * inputs.entropy).sum()
        if inputs.values is not None:
            loss = loss + (inputs.weights * (inputs.values - inputs.returns).square()).sum()
        return loss, {"advantage": inputs.advantages.detach().sum()}


def recorder(tools):
    made = []
    return made, lambda context: made.append(tools.Recorder(context)) or made[-1]


def gradients(build, tools, batch, objective=None, tokens=0, updates=1, **stage):
    made, optimizer = recorder(tools)
    trainer = build(micro_batch_tokens=tokens)
    trainer.begin_stage(
        tools.stage(objective or grpo(GrpoOptions(), CONTEXT), optimizer=optimizer, updates=updates, **stage)
    )
    figures = trainer.train(batch)
    return [torch.cat([g.flatten() for g in taken]) for o in made for taken in o.taken], figures


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from(["grpo", "gspo", "ppo", "kl"]))
def test_any_cut_into_micro_batches_gives_the_same_gradient_and_figures(build, tools, seed, tokens, kind):
    objective = {
        "grpo": grpo(GrpoOptions(entropy=0.1), CONTEXT),
        "gspo": gspo(GspoOptions(), CONTEXT),
        "ppo": ppo(PpoOptions(), CONTEXT),
        "kl": grpo(GrpoOptions(kl=0.1), CONTEXT),
    }[kind]
    batch = tools.random_batch(np.random.default_rng(seed))
    whole, one = gradients(build, tools, batch, objective, 10**6)
    cut, many = gradients(build, tools, batch, objective, tokens)
    for a, b in zip(whole, cut, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert one == pytest.approx(many, rel=1e-4, abs=1e-5)


def test_the_gradient_is_that_of_the_plain_computation(build, tools, model_dir):
    batch = tools.random_batch(np.random.default_rng(0))
    (ours,), figures = gradients(build, tools, batch, PolicyGradient([]), 40, temperature=0.6)
    model = AutoModelForCausalLM.from_pretrained(model_dir(), attn_implementation="eager")
    count = sum(t.trained_units for t in batch.trajectories)
    loss = torch.zeros(())
    for t in batch.trajectories:
        logp = tools.plain_logp(model, t.columns["tokens"], 0.6)
        loss = loss - t.reward / count * (logp * torch.from_numpy(t.columns["mask"][1:])).sum()
    loss.backward()
    named = [p for p in model.parameters() if p.ndim > 1] + [p for p in model.parameters() if p.ndim == 1]
    torch.testing.assert_close(ours, torch.cat([p.grad.flatten() for p in named]), rtol=1e-4, atol=1e-6)
    assert figures["loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert figures["grad_norm"] == pytest.approx(ours.norm().item(), rel=1e-5)


def test_parts_average_to_the_whole_batch(build, tools):
    batch = tools.random_batch(np.random.default_rng(1), groups=4)
    (whole,), _ = gradients(build, tools, batch, PolicyGradient([]))
    parts, _ = gradients(build, tools, batch, PolicyGradient([]), updates=4)
    assert len(parts) == 4
    torch.testing.assert_close(sum(parts) / 4, whole, rtol=1e-4, atol=1e-6)


def inputs_of(build, tools, batch, updates=1, **stage):
    seen = []
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient(seen), updates=updates, learning_rate=0.1, **stage))
    figures = trainer.train(batch)
    return seen[0], seen[1:], figures


def test_with_one_update_the_proximal_policy_is_the_current_one(build, tools):
    _, (inputs,), _ = inputs_of(build, tools, tools.random_batch(np.random.default_rng(2)))
    assert torch.equal(inputs.proximal, inputs.logp)
    assert not inputs.proximal.requires_grad


def test_with_several_updates_the_proximal_policy_stays_that_of_the_start(build, tools):
    batch = tools.random_batch(np.random.default_rng(2), groups=2)
    _, (first, second), _ = inputs_of(build, tools, batch, updates=2)
    torch.testing.assert_close(first.proximal, first.logp.detach(), rtol=1e-5, atol=1e-5)
    assert (second.proximal - second.logp).abs().max() > 0.01


def test_micro_batches_hold_whole_trajectories_counted_from_zero(build, tools):
    seen = []
    trainer = build(micro_batch_tokens=15)
    trainer.begin_stage(tools.stage(PolicyGradient(seen)))
    batch = tools.random_batch(np.random.default_rng(3))
    trainer.train(batch)
    sizes = []
    for inputs in seen[1:]:
        counts = torch.bincount(inputs.trajectory)
        assert (counts > 0).all()
        sizes += counts.tolist()
    assert sorted(sizes) == sorted(t.trained_units for t in batch.trajectories)


def test_mismatch_is_over_tokens_of_the_current_version(build, tools, model_dir):
    batch = tools.random_batch(np.random.default_rng(4))
    model = AutoModelForCausalLM.from_pretrained(model_dir())
    gaps = []
    for t in batch.trajectories:
        logp = tools.plain_logp(model, t.columns["tokens"]).detach().numpy()
        current = (t.columns["versions"][1:] == 3) & (t.columns["mask"][1:] == 1)
        gaps.append(np.abs(logp - t.columns["logprobs"][1:])[current])
    _, _, figures = inputs_of(build, tools, batch)
    assert figures["mismatch"] == pytest.approx(np.concatenate(gaps).mean(), rel=1e-4)


def test_there_is_no_mismatch_where_nothing_is_current(build, tools):
    batch = tools.batch([[tools.trajectory([1, 2], [3, 4], step=1)]], step=3)
    _, _, figures = inputs_of(build, tools, batch)
    assert "mismatch" not in figures
    assert figures["lag/mean"] == figures["lag/max"] == 2


def test_figures_of_the_batch(build, tools):
    group = [
        tools.trajectory([1], [2, 3, 4], reward=1.0, finish="length"),
        tools.trajectory([1], [2], reward=0.0, member=1, step=2),
    ]
    _, _, figures = inputs_of(build, tools, tools.batch([group]))
    known = {"tokens": 4, "reward": 0.5, "reward_std": 0.5, "truncated": 0.5, "length/mean": 2}
    assert known.items() <= figures.items()
    assert figures["lag/mean"] == 0.25
    assert figures["advantage"] == pytest.approx(0.75)  # a sum over units, divided by all trained ones


def test_entropy_of_a_uniform_policy_is_the_logarithm_of_the_vocabulary(build, tools, model_dir):
    trainer = build()
    torch.nn.init.zeros_(trainer._policy.model.get_output_embeddings().weight)
    trainer.begin_stage(tools.stage())
    assert trainer.train(tools.random_batch(np.random.default_rng(0)))["entropy"] == pytest.approx(np.log(13), rel=1e-5)


def test_a_batch_without_signal_runs_no_backward_pass(build, tools, monkeypatch):
    ran, backward = [], step.gradients.backward
    monkeypatch.setattr(step.gradients, "backward", lambda *args: ran.append(backward(*args)))
    batch = tools.random_batch(np.random.default_rng(0))
    (taken,), figures = gradients(build, tools, batch, PolicyGradient([], advantage=0.0))
    assert ran == [False]
    assert not taken.any()
    assert figures["grad_norm"] == 0


def test_weights_move_against_the_gradient(build, tools):
    batch = tools.random_batch(np.random.default_rng(5))
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient([], advantage=1.0)))
    losses = [trainer.train(batch)["loss"] for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_the_gradient_is_clipped_and_it_is_said(build, tools):
    batch = tools.random_batch(np.random.default_rng(6))
    (plain,), free = gradients(build, tools, batch, PolicyGradient([]))
    (taken,), held = gradients(build, tools, batch, PolicyGradient([]), grad_clip=0.01)
    assert free["clipped"] == 0
    assert held["clipped"] == 1
    assert held["grad_norm"] == free["grad_norm"]
    torch.testing.assert_close(taken, plain * (0.01 / plain.norm()), rtol=1e-5, atol=1e-8)


def snapshot(trainer):
    optimizer = trainer._stage.learner.optimizer.state_dict()["state"]
    weights = {name: tensor.clone() for name, tensor in trainer.weights()}
    return weights, {(k, n): v.clone() for k, state in optimizer.items() for n, v in state.items()}


def test_a_step_that_is_not_finite_changes_nothing(build, tools):
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient([], broken_at=4)))
    trainer.train(tools.random_batch(np.random.default_rng(0)))
    before = snapshot(trainer)
    figures = trainer.train(tools.random_batch(np.random.default_rng(1), step=4))
    after = snapshot(trainer)
    assert figures["skipped"] == 1
    assert "loss" not in figures
    for old, new in zip(before, after, strict=True):
        assert all(torch.equal(old[name], new[name]) for name in old)


def test_training_goes_on_after_a_skipped_step(build, tools):
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient([], broken_at=4)))
    skipped = [trainer.train(tools.random_batch(np.random.default_rng(0), step=s))["skipped"] for s in (4, 5)]
    assert skipped == [1, 0]


def test_the_objective_sees_the_reference_of_the_stages_start(build, tools):
    batch = tools.random_batch(np.random.default_rng(7))
    seen = []
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient(seen, needs_reference=True)))
    trainer.train(batch)
    trainer.train(batch)
    first, second = (s for s in seen if hasattr(s, "rewards"))
    inputs = [s for s in seen if not hasattr(s, "rewards")]
    assert np.array_equal(first.reference, second.reference)
    torch.testing.assert_close(inputs[0].reference, inputs[0].logp.detach(), rtol=1e-4, atol=1e-4)
    assert (inputs[1].reference - inputs[1].logp).abs().max() > 1e-3


def test_the_reference_is_renewed_when_the_plan_says_so(build, tools):
    batch = tools.random_batch(np.random.default_rng(7))
    seen = []
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient(seen, needs_reference=True), reference_every=2))
    for _ in range(3):
        trainer.train(batch)
    first, second, third = (s.reference for s in seen if hasattr(s, "rewards"))
    assert np.array_equal(first, second)
    assert not np.array_equal(second, third)


def test_a_critic_learns_the_returns(build, tools):
    batch = tools.random_batch(np.random.default_rng(8))
    seen = []
    trainer = build()
    stage = tools.stage(PolicyGradient(seen, needs_critic=True), critic=CriticPlan(1e-2), learning_rate=1e-6)
    trainer.begin_stage(stage)
    for _ in range(25):
        figures = trainer.train(batch)
    first, *_, last = (s for s in seen if hasattr(s, "values") and hasattr(s, "old_values"))
    assert not first.values.any()
    assert (last.values - last.returns).square().mean() < 0.5 * (first.values - first.returns).square().mean()
    assert figures["critic_grad_norm"] > 0


def test_a_warming_critic_leaves_the_policy_alone(build, tools):
    batch = tools.random_batch(np.random.default_rng(8))
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient([], needs_critic=True), critic=CriticPlan(1e-2, warmup_steps=2)))
    start = {name: value.clone() for name, value in trainer.weights()}
    for _ in range(2):
        trainer.train(batch)
        assert all(torch.equal(start[name], value) for name, value in trainer.weights())
    trainer.train(batch)
    assert not all(torch.equal(start[name], value) for name, value in trainer.weights())


def test_the_rate_follows_schedule_and_lag(build, tools):
    trainer = build()
    trainer.begin_stage(tools.stage(PolicyGradient([]), learning_rate=1.0, warmup_steps=2, lag_decay=0.5))
    fresh = tools.batch([[tools.trajectory([1], [2], step=3)]], step=3)
    stale = tools.batch([[tools.trajectory([1], [2], step=1)]], step=3)
    rates = [trainer.train(b)["learning_rate"] for b in (fresh, fresh, stale)]
    assert rates == [0.5, 1.0, 0.5]


def test_the_same_seed_and_batches_give_the_same_bits(build, tools):
    def run():
        rng = np.random.default_rng(9)
        trainer = build()
        trainer.begin_stage(tools.stage())
        figures = [trainer.train(tools.random_batch(rng)) for _ in range(3)]
        return figures, dict(trainer.weights())

    (figures, weights), (again, same) = run(), run()
    assert figures == again
    assert all(torch.equal(weights[name], same[name]) for name in weights)


def test_rows_without_any_trained_unit_are_scored_but_not_read(build, tools):
    group = [tools.trajectory([1], [2, 3], reward=1.0), tools.trajectory([1], [4], mask=[0], member=1)]
    arrays, (inputs,), figures = inputs_of(build, tools, tools.batch([group]))
    assert len(arrays.rewards) == 2
    assert len(inputs.logp) == figures["tokens"] == 2


def test_a_batch_with_no_trained_unit_at_all_is_no_error(build, tools):
    batch = tools.batch([[tools.trajectory([1], [4], mask=[0], member=1)]])
    trainer = build()
    trainer.begin_stage(tools.stage(grpo(GrpoOptions(), CONTEXT)))
    assert trainer.train(batch)["tokens"] == 0


def test_activation_checkpointing_changes_no_number(build, tools):
    batch = tools.random_batch(np.random.default_rng(10))

    def weights(**context):
        trainer = build(**context)
        trainer.begin_stage(tools.stage())
        trainer.train(batch)
        return dict(trainer.weights())

    plain, saving = weights(), weights(activation_checkpointing=True)
    assert all(torch.equal(plain[name], saving[name]) for name in plain)
