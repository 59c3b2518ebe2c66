"""The built-in trainer keeps the rules for trainers, and each rule catches a trainer that breaks it."""

import copy
import itertools

import pytest
import torch
from attrs import evolve

from areal_core.data import WeightVersion
from areal_plugins import TrainerCapabilities, TrainerDescriptor
from areal_plugins.builtin.trainer import TorchTrainerOptions
from areal_plugins.builtin.trainer import trainer as module
from areal_plugins.builtin.trainer.trainer import TorchTrainer
from areal_plugins.testing.conformance import TrainerConformance
from areal_plugins.testing.conformance.running import run


class TestTorch(TrainerConformance):
    @pytest.fixture
    def component(self):
        return "trainer/torch"


# --- each breaks one promise -----------------------------------------------------------------------


class MixedGradient(TorchTrainer):
    """The gradients of norms and biases stand in the wrong places."""

    def __init__(self, options, context):
        super().__init__(options, context)
        for parameter in self._policy.trainable.values():
            if parameter.ndim == 1:
                parameter.register_hook(lambda grad: grad.flip(0))


class ForgetsTemperature(TorchTrainer):
    def begin_stage(self, stage):
        super().begin_stage(evolve(stage, temperature=1.0))


class CountsPrompts(TorchTrainer):
    """Its `tokens` are all of the batch, prompts too."""

    def train(self, batch):
        return {**super().train(batch), "tokens": float(sum(len(t) for t in batch.trajectories))}


class AnyVersion(TorchTrainer):
    """Its `mismatch` is over tokens of whatever version."""

    def train(self, batch):
        def alike(t):
            code = WeightVersion(0, batch.step).code
            return evolve(t, columns={**t.columns, "versions": t.columns["versions"].clip(min=code)})

        groups = [evolve(g, trajectories=tuple(map(alike, g.trajectories))) for g in batch.groups]
        return super().train(evolve(batch, groups=tuple(groups)))


class AveragesMicroBatches(TorchTrainer):
    """Reports the mean of the micro-batches' losses."""

    def train(self, batch):
        figures = super().train(batch)
        return {**figures, "loss": figures["loss"] / 3} if 0 < self._context.micro_batch_tokens < 100 else figures


class Distracted(TorchTrainer):
    """What it does depends on what happened in the process before."""

    made = itertools.count(1)

    def train(self, batch):
        figures = super().train(batch)
        with torch.no_grad():
            if not figures["skipped"]:
                list(self._policy.trainable.values())[-1].mul_(1 + 1.2e-7 * (next(self.made) % 3))
        return figures


class IgnoresWarmup(TorchTrainer):
    def begin_stage(self, stage):
        super().begin_stage(evolve(stage, optimizer=evolve(stage.optimizer, warmup_steps=0)))


class NeverClips(TorchTrainer):
    def begin_stage(self, stage):
        super().begin_stage(evolve(stage, optimizer=evolve(stage.optimizer, grad_clip=None)))


class KeepsOptimizer(TorchTrainer):
    """The next stage goes on with the optimizer of the last."""

    def begin_stage(self, stage):
        old = self._stage
        super().begin_stage(stage)
        if old is not None:
            self._stage.learner.optimizer.load_state_dict(old.learner.optimizer.state_dict())


class StepsOnNan(TorchTrainer):
    """Makes the weights of a step that is not finite."""

    def train(self, batch):
        figures = super().train(batch)
        if figures["skipped"]:
            with torch.no_grad():
                next(iter(self._policy.trainable.values())).mul_(0.5)
        return figures


class HidesSkips(TorchTrainer):
    def train(self, batch):
        return {**super().train(batch), "skipped": 0.0}


class IgnoresLimits(TorchTrainer):
    """Applies whatever gradient there is."""

    def train(self, batch):
        return super().train(evolve(batch, grad_limit=None))


class NeverGoesBack(TorchTrainer):
    """Takes up a state only before its first step."""

    def train(self, batch):
        self._began = True
        return super().train(batch)

    def load_state(self, directory):
        if not hasattr(self, "_began"):
            super().load_state(directory)


class YieldsBuffers(TorchTrainer):
    """Its weights have more names than the checkpoint."""

    def weights(self):
        yield from super().weights()
        if self._context.lora is None:
            yield "model.rotary_emb.inv_freq", torch.ones(4)


class Unordered(TorchTrainer):
    """The weights that have changed come first."""

    def weights(self):
        pairs = list(super().weights())
        return iter(pairs[::-1] if self._stage.batches else pairs)


class SavesStart(TorchTrainer):
    """Saves other weights than it has."""

    def save_model(self, directory):
        if self._stage.batches != 1:
            return super().save_model(directory)
        with torch.no_grad():
            held = {name: p.clone() for name, p in self._policy.trainable.items()}
            for p in self._policy.trainable.values():
                p.mul_(0.99)
            rest = super().save_model(directory)
            for name, p in self._policy.trainable.items():
                p.copy_(held[name])
        return rest


class WritesModelLate(TorchTrainer):
    """Copies nothing: what it writes are the weights of whenever it writes."""

    def save_model(self, directory):
        save = super().save_model
        return lambda: save(directory)()


class WritesStateLate(TorchTrainer):
    """Its state is that of whenever it writes."""

    def save_state(self, directory):
        save = super().save_state
        return lambda: save(directory)()


class ForgetsMoments(TorchTrainer):
    """A resume has the weights, and an optimizer that knows nothing."""

    def load_state(self, directory):
        fresh = {**self._stage.learner.optimizer.state_dict(), "state": {}}
        super().load_state(directory)
        self._stage.learner.optimizer.load_state_dict(fresh)


class BareWeights(TorchTrainer):
    """Leaves the adapters' part out."""

    def weights(self):
        for name, tensor in super().weights():
            if self._context.lora is None:
                yield name, tensor
            else:
                yield name, dict(self._policy.model.named_parameters()).get(_wrapped(name), tensor).detach()


def _wrapped(name):
    return name.replace(".weight", ".base_layer.weight")


class MovingReference(TorchTrainer):
    """The reference is the policy of now."""

    def begin_stage(self, stage):
        super().begin_stage(evolve(stage, reference_every=1))


class RestingCritic(TorchTrainer):
    """Its critic learns nothing."""

    def train(self, batch):
        if self._critic is not None:
            for p in self._critic.trainable.values():
                p.requires_grad_(True).register_hook(torch.zeros_like)
        return super().train(batch)


class Bursting(TorchTrainer):
    """Its memory is more than full."""

    def memory(self):
        return 1.5


SKIPS = {"test_a_step_that_is_not_finite_changes_nothing", "test_a_gradient_over_the_batchs_limit_is_not_applied"}
STATES = {
    "test_a_resumed_trainer_goes_on_exactly",
    "test_what_is_written_late_is_of_the_moment_it_was_saved",
    "test_a_trainer_goes_back_to_a_state_of_its_own",
}
BREAKS = {
    Bursting: {"test_making_room_changes_nothing"},
    MixedGradient: {"test_loss_and_gradient_are_the_references"},
    ForgetsTemperature: {"test_loss_and_gradient_are_the_references"},
    CountsPrompts: {"test_figures_are_those_of_the_step"},
    AnyVersion: {"test_figures_are_those_of_the_step"},
    AveragesMicroBatches: {"test_micro_batches_do_not_matter"},
    Distracted: {"test_equal_steps_are_equal", "test_making_room_changes_nothing", *STATES},
    IgnoresWarmup: {"test_learning_rate_is_the_one_applied"},
    NeverClips: {"test_gradients_are_clipped"},
    KeepsOptimizer: {"test_a_stage_begins_afresh"},
    StepsOnNan: {
        "test_a_step_that_is_not_finite_changes_nothing",
        "test_a_gradient_over_the_batchs_limit_is_not_applied",
    },
    HidesSkips: {
        "test_a_step_that_is_not_finite_changes_nothing",
        "test_a_gradient_over_the_batchs_limit_is_not_applied",
    },
    IgnoresLimits: {"test_a_gradient_over_the_batchs_limit_is_not_applied"},
    NeverGoesBack: {"test_a_trainer_goes_back_to_a_state_of_its_own"},
    YieldsBuffers: {"test_weights_are_named_as_the_checkpoint_names_them"},
    Unordered: {"test_weights_have_a_stable_order"},
    SavesStart: {"test_a_saved_model_loads_and_is_the_same"},
    WritesModelLate: {"test_what_is_written_late_is_of_the_moment_it_was_saved"},
    WritesStateLate: {"test_what_is_written_late_is_of_the_moment_it_was_saved"},
    ForgetsMoments: STATES,
    BareWeights: {"test_adapters_are_merged"},
    MovingReference: {"test_reference_is_the_policy_at_the_stages_start"},
    RestingCritic: {"test_critic_is_trained"},
}
RULES = [name for name in vars(TrainerConformance) if name.startswith("test_")]


def broken(kind):
    return TrainerDescriptor(
        name="broken",
        summary="Breaks one promise",
        factory=f"{__name__}:{kind.__name__}",
        options=TorchTrainerOptions,
        capabilities=TrainerCapabilities(lora=True, reference=True, critic=True),
    )


@pytest.fixture
def quick(monkeypatch):
    """What takes long about a trainer's start is left out, or done once."""
    load = module.load_model
    kept = {}

    def loaded(directory, *how):
        key = (directory, *how)
        kept[key] = kept.get(key) or load(directory, *how)
        return copy.deepcopy(kept[key])

    monkeypatch.setattr(module, "load_model", loaded)
    monkeypatch.setattr(module, "check_packing", lambda *_: None)


def test_every_rule_is_broken_by_some_trainer():
    assert set.union(*BREAKS.values()) == set(RULES)


@pytest.mark.parametrize("kind", BREAKS, ids=lambda kind: kind.__name__)
def test_a_trainer_that_breaks_a_promise_fails_its_rule_alone(kind, quick, asked):
    only = asked(kind.__name__, BREAKS[kind], RULES)
    failed = {r.test: r.cause for r in run(TrainerConformance, broken(kind), only=only) if r.outcome == "failed"}
    assert set(failed) == BREAKS[kind], failed


def test_what_a_trainer_does_not_declare_is_skipped(quick):
    plain = evolve(broken(TorchTrainer), capabilities=TrainerCapabilities())
    declared = [
        "test_adapters_are_merged",
        "test_reference_is_the_policy_at_the_stages_start",
        "test_critic_is_trained",
    ]
    results = run(TrainerConformance, plain, only=declared)
    assert [(r.test, r.outcome) for r in results] == [(test, "skipped") for test in declared]
