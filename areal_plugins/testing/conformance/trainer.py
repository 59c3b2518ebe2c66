"""What a trainer must keep."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from attrs import evolve
from safetensors import safe_open
from transformers import AutoModelForCausalLM

from areal_core.contexts import LoraPlan, Place, TrainerContext
from areal_core.data import Batch
from areal_core.protocols import Trainer
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.batches import random_batch
from areal_plugins.testing.conformance.reference import Reference, load, reference
from areal_plugins.testing.conformance.training import (
    RATE,
    Stand,
    Surrogate,
    differing,
    largest_gap,
    momentum,
    moved,
    plain_step,
    save,
    stage,
    weights_of,
)

LORA = LoraPlan(rank=4, alpha=8.0)


class TrainerConformance(Conformance):
    """Rules for trainers of language models, against the same step in float64 by plain transformers.

    `tolerance`: largest difference of a gradient, as a share of its norm, and of a figure, as a share
    of itself. `dtype`: what the trainer is asked to compute in.
    """

    kind: ClassVar[str] = "trainer"
    tolerance: ClassVar[float] = 1e-4
    dtype: ClassVar[str] = "float32"

    @pytest.fixture
    def model(self) -> Reference:
        """The model that the trainer starts with."""
        return reference(seed=0)

    @pytest.fixture
    def stand(self, subject: Subject, model: Reference, place: Place, tmp_path: Path) -> Iterator[Stand]:
        """Builds trainers."""
        if subject.descriptor.capabilities.unit != "token":
            pytest.skip("the trainer's unit is not the token")
        stand = Stand(subject, TrainerContext(model.directory, self.dtype, place, seed=1, work=tmp_path))
        yield stand
        stand.close()

    # --- one step ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("temperature", [1.0, 0.7])
    def test_loss_and_gradient_are_the_references(self, stand: Stand, model: Reference, temperature: float) -> None:
        """A step's loss and gradient are those of the formula, at the temperature that tokens were drawn at."""
        expected = plain_step(model, BATCH, temperature)
        trainer = stand.begin(stage(temperature=temperature))
        before, figures = weights_of(trainer), trainer.train(BATCH)
        self.near(figures["loss"], expected.loss, "the loss")
        name, gap = largest_gap(moved(before, weights_of(trainer), RATE), expected.gradient)
        assert gap <= self.tolerance, f"the gradient of {name} differs by {gap:.2g} of the whole gradient's norm"

    def test_figures_are_those_of_the_step(self, stand: Stand, model: Reference) -> None:
        """`grad_norm`, `learning_rate`, `tokens` and `mismatch` are what they say; every figure is a finite number."""
        expected = plain_step(model, BATCH)
        figures = stand.begin().train(BATCH)
        odd = [name for name, value in figures.items() if not math.isfinite(value)]
        assert not odd, f"figures that are no finite number: {', '.join(odd)}"
        count = sum(t.trained_units for t in BATCH.trajectories)
        wanted = {"grad_norm": expected.norm, "learning_rate": RATE, "tokens": count, "mismatch": expected.mismatch}
        missing = wanted.keys() - figures.keys()
        assert not missing, f"there is no figure {', '.join(sorted(missing))}"
        for name, value in wanted.items():
            self.near(figures[name], value, name)

    @pytest.mark.parametrize("tokens", [1, 40])
    def test_micro_batches_do_not_matter(self, stand: Stand, tokens: int) -> None:
        """Any bound on the tokens of a micro-batch gives the same figures and the same weights."""
        whole, cut = stand.begin(micro_batch_tokens=1 << 20), stand.begin(micro_batch_tokens=tokens)
        before, one, many = weights_of(whole), whole.train(BATCH), cut.train(BATCH)
        for name, value in one.items():
            self.near(many[name], value, f"in micro-batches of {tokens} tokens {name}")
        name, gap = largest_gap(moved(before, weights_of(cut), RATE), moved(before, weights_of(whole), RATE))
        assert gap <= self.tolerance, f"micro-batches of {tokens} tokens change the gradient of {name} by {gap:.2g}"

    def test_equal_steps_are_equal(self, stand: Stand) -> None:
        """Two trainers with one seed do the same, to the bit."""
        one, two = stand.begin(stage(optimizer=momentum, rate=1e-2)), stand.begin(stage(optimizer=momentum, rate=1e-2))
        figures = [[trainer.train(each) for each in BATCHES] for trainer in (one, two)]
        assert figures[0] == figures[1], "the same steps give other figures"
        differ = differing(weights_of(one), weights_of(two))
        assert not differ, f"the same steps give other weights: {', '.join(differ)}"

    # --- the optimizer -----------------------------------------------------------------------------

    def test_learning_rate_is_the_one_applied(self, stand: Stand) -> None:
        """The rate rises over `warmup_steps`; a step moves by the rate it reports."""
        trainer = stand.begin(stage(warmup_steps=4))
        before = weights_of(trainer)
        figures = trainer.train(BATCH)
        self.near(figures["learning_rate"], RATE / 4, "the rate of the first of 4 steps of warm-up")
        length = _norm(moved(before, weights_of(trainer), 1.0))
        self.near(length, RATE / 4 * figures["grad_norm"], "the length of the step")

    def test_gradients_are_clipped(self, stand: Stand) -> None:
        """A gradient longer than `grad_clip` is scaled down to it; `grad_norm` is what it was before."""
        trainer = stand.begin(stage(grad_clip=1e-2))
        before = weights_of(trainer)
        norm = trainer.train(BATCH)["grad_norm"]
        assert norm > 1e-2, f"the reported grad_norm is {norm:.3g}, after clipping"
        self.near(_norm(moved(before, weights_of(trainer), RATE)), 1e-2, "the clipped gradient's norm")

    def test_a_stage_begins_afresh(self, stand: Stand, tmp_path: Path) -> None:
        """`begin_stage` keeps the weights, and nothing of the optimizer."""
        plan = stage(optimizer=momentum, rate=1e-2, warmup_steps=3)
        old = stand.begin(plan)
        _train(old, BATCHES[:2])
        save(old.save_model, tmp_path / "model")
        kept = weights_of(old)
        old.begin_stage(plan)
        differ = differing(kept, weights_of(old))
        assert not differ, f"beginning a stage changes {', '.join(differ)}"
        fresh = stand.begin(plan, model=tmp_path / "model")
        old.train(BATCHES[2])
        fresh.train(BATCHES[2])
        name, gap = largest_gap(moved(kept, weights_of(old), 1.0), moved(kept, weights_of(fresh), 1.0))
        assert gap <= self.tolerance, f"in a new stage {name} moves otherwise than in a new trainer, by {gap:.2g}"

    def test_a_step_that_is_not_finite_changes_nothing(self, stand: Stand) -> None:
        """A step whose loss is not finite changes no weight and reports `skipped` 1; training goes on from there."""
        trainer = stand.begin(stage(Surrogate(broken_at=BATCHES[1].step), optimizer=momentum, rate=1e-2))
        plain = stand.begin(stage(optimizer=momentum, rate=1e-2))
        for each in (trainer, plain):
            assert not each.train(BATCHES[0]).get("skipped"), "a finite step is reported as skipped"
        before = weights_of(trainer)
        figures = trainer.train(BATCHES[1])
        assert figures.get("skipped") == 1, f"`skipped` is {figures.get('skipped')} after a loss that is not finite"
        differ = differing(before, weights_of(trainer))
        assert not differ, f"a step that is not finite changes {', '.join(differ)}"
        for each in (trainer, plain):
            each.train(BATCHES[2])
        name, gap = largest_gap(weights_of(trainer), weights_of(plain))
        assert gap <= self.tolerance, f"after a skipped step {name} moves otherwise, by {gap:.2g}"

    def test_a_gradient_over_the_batchs_limit_is_not_applied(self, stand: Stand) -> None:
        """A step whose gradient's norm is over `grad_limit` changes no weight and reports `skipped`, `exploded` 1."""
        trainer = stand.begin(stage(optimizer=momentum, rate=1e-2, grad_clip=1e-3))
        before = weights_of(trainer)
        norm = trainer.train(BATCHES[0])["grad_norm"]
        after = weights_of(trainer)
        assert differing(before, after), "a step without a limit changes no weight"
        figures = trainer.train(evolve(BATCHES[0], grad_limit=norm / 10))
        told = {name: figures.get(name) for name in ("skipped", "exploded")}
        assert told == {"skipped": 1, "exploded": 1}, f"over the limit a step reports {told}"
        differ = differing(after, weights_of(trainer))
        assert not differ, f"a step over the limit changes {', '.join(differ)}"
        figures = trainer.train(evolve(BATCHES[1], grad_limit=norm * 1e3))
        assert not figures.get("skipped"), "a step under the limit is skipped"
        assert differing(after, weights_of(trainer)), "a step under the limit changes no weight"

    # --- what comes out ----------------------------------------------------------------------------

    def test_weights_are_named_as_the_checkpoint_names_them(self, stand: Stand, model: Reference) -> None:
        """`weights` yields every parameter of the model's directory, under its name there, whole and unchanged."""
        found = dict(stand.begin().weights())
        with safe_open(model.directory / "model.safetensors", framework="pt") as file:
            names = set(file.keys())
            assert set(found) == names, f"names that are not the checkpoint's: {', '.join(set(found) ^ names)}"
            for name in sorted(names):
                same = torch.equal(torch.as_tensor(found[name]).cpu(), file.get_tensor(name))
                assert same, f"{name} is not what the directory holds"

    def test_weights_have_a_stable_order(self, stand: Stand) -> None:
        """The order of `weights` is the same before and after a step, and in every trainer."""
        trainer = stand.begin()
        first = [name for name, _ in trainer.weights()]
        trainer.train(BATCH)
        for each, when in ((trainer, "after a step"), (stand.begin(), "in another trainer")):
            assert [name for name, _ in each.weights()] == first, f"the order of the weights is another {when}"

    def test_a_saved_model_loads_and_is_the_same(self, stand: Stand, model: Reference, tmp_path: Path) -> None:
        """transformers loads what `save_model` wrote, and its logits are those of `weights`."""
        trainer = stand.begin()
        trainer.train(BATCH)
        self.saved(trainer, model, tmp_path / "model")

    def test_a_resumed_trainer_goes_on_exactly(self, stand: Stand, tmp_path: Path) -> None:
        """After `load_state` a fresh trainer takes the same steps, to the bit."""
        plan = stage(optimizer=momentum, rate=1e-2, schedule="cosine", warmup_steps=3)
        whole = stand.begin(plan)
        _train(whole, BATCHES[:2])
        (tmp_path / "state").mkdir()
        save(whole.save_state, tmp_path / "state")
        expected = _train(whole, BATCHES[2:])
        resumed = stand.begin(plan)
        resumed.load_state(tmp_path / "state")
        found = _train(resumed, BATCHES[2:])
        assert found == expected, "a resumed trainer's figures are others"
        differ = differing(weights_of(whole), weights_of(resumed))
        assert not differ, f"a resumed trainer's weights are others: {', '.join(differ)}"

    def test_making_room_changes_nothing(self, stand: Stand) -> None:
        """`memory` is from 0 to 1, or None; a step after `relieve` is the step without it."""
        trainer: Any = stand.begin()
        if not hasattr(trainer, "memory") or not hasattr(trainer, "relieve"):
            pytest.skip("the trainer has no memory and relieve")
        plain: Any = stand.begin()
        for each in (trainer, plain):
            each.train(BATCHES[0])
        trainer.relieve()
        share = trainer.memory()
        assert share is None or 0 <= share <= 1, f"memory is {share}, which is no share"
        assert trainer.train(BATCHES[1]) == plain.train(BATCHES[1]), "a step after relieve has other figures"

    def test_a_trainer_goes_back_to_a_state_of_its_own(self, stand: Stand, tmp_path: Path) -> None:
        """`begin_stage` and `load_state` in a trainer that went on meanwhile give the same steps, to the bit."""
        plan = stage(optimizer=momentum, rate=1e-2, schedule="cosine", warmup_steps=3)
        trainer = stand.begin(plan)
        _train(trainer, BATCHES[:2])
        (tmp_path / "state").mkdir()
        trainer.save_state(tmp_path / "state")
        expected, reached = _train(trainer, BATCHES[2:]), weights_of(trainer)
        trainer.begin_stage(plan)
        trainer.load_state(tmp_path / "state")
        assert _train(trainer, BATCHES[2:]) == expected, "the figures of the same steps are others after going back"
        differ = differing(reached, weights_of(trainer))
        assert not differ, f"the weights after the same steps are others after going back: {', '.join(differ)}"

    def test_what_is_written_late_is_of_the_moment_it_was_saved(
        self, stand: Stand, model: Reference, tmp_path: Path
    ) -> None:
        """What saving leaves to be written is not changed by the steps that are taken before it is written."""
        plan = stage(optimizer=momentum, rate=1e-2, warmup_steps=8)
        one = stand.begin(plan)
        _train(one, BATCHES[:2])
        then = weights_of(one)
        rests = [one.save_model(tmp_path / "model"), one.save_state(tmp_path / "state")]
        expected = _train(one, BATCHES[2:])
        for rest in rests:
            if rest is not None:
                rest()
        loaded, plain = load(tmp_path / "model"), load(model.directory)
        plain.load_state_dict(then, strict=False)
        differ = differing(dict(plain.named_parameters()), dict(loaded.named_parameters()))
        assert not differ, f"the model that was written has later weights: {', '.join(differ)}"
        resumed = stand.begin(plan)
        resumed.load_state(tmp_path / "state")
        assert _train(resumed, BATCHES[2:]) == expected, "the state that was written is a later one"

    # --- what it declares --------------------------------------------------------------------------

    def test_adapters_are_merged(self, stand: Stand, model: Reference, tmp_path: Path) -> None:
        """A trainer that declares `lora` yields and saves whole weights, in which the adapters' part is merged."""
        if not stand.subject.descriptor.capabilities.lora:
            pytest.skip("the trainer has no adapters")
        trainer = stand.begin(lora=LORA)
        before = weights_of(trainer)
        assert set(before) == set(dict(model.weights())), "with adapters, weights have names of their own"
        _train(trainer, BATCHES[:2])
        assert differing(before, weights_of(trainer)), "training adapters changes no weight"
        self.saved(trainer, model, tmp_path / "model")

    def test_reference_is_the_policy_at_the_stages_start(self, stand: Stand) -> None:
        """A trainer that declares `reference` gives objectives the log-probabilities of the stage's first weights."""
        if not stand.subject.descriptor.capabilities.reference:
            pytest.skip("the trainer keeps no reference policy")
        objective = Surrogate(needs_reference=True)
        trainer = stand.begin(stage(objective), micro_batch_tokens=1 << 20)
        for _ in range(2):
            trainer.train(BATCH)
        first, second = objective.seen[0], objective.seen[-1]
        for inputs, when in ((first, "in the first step"), (second, "in the second step")):
            assert inputs.reference is not None, f"there is no reference {when}"
            gap = float((inputs.reference - first.logp.detach()).abs().max())
            assert gap <= 10 * self.tolerance, f"{when} the reference differs from the stage's start by {gap:.2g}"

    def test_critic_is_trained(self, stand: Stand) -> None:
        """A trainer that declares `critic` gives objectives values, and its critic learns."""
        if not stand.subject.descriptor.capabilities.critic:
            pytest.skip("the trainer has no critic")
        objective = Surrogate(needs_critic=True)
        trainer = stand.begin(stage(objective, optimizer=momentum, rate=1e-2), micro_batch_tokens=1 << 20)
        for _ in range(6):
            trainer.train(BATCH)
        assert all(inputs.values is not None for inputs in objective.seen), "an objective is given no values"
        errors = [float((i.values.detach() - i.returns).square().mean()) for i in objective.seen]
        assert errors[-1] < errors[0], f"the critic's error goes from {errors[0]:.3g} to {errors[-1]:.3g}"

    # --- comparisons -------------------------------------------------------------------------------

    def near(self, found: float, expected: float, what: str) -> None:
        """Two figures agree within `tolerance`."""
        gap = abs(found - expected) / max(abs(expected), 1e-2)
        assert gap <= self.tolerance, f"{what} is {found:.6g}, not {expected:.6g}"

    def saved(self, trainer: Trainer, model: Reference, directory: Path) -> None:
        """What the trainer saves loads whole, and has the logits of what it yields."""
        save(trainer.save_model, directory)
        loaded: Any = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
        _, report = loaded
        lacking = report["missing_keys"] or report["unexpected_keys"]
        assert not lacking, f"transformers misses, or does not know, {', '.join(map(str, lacking))}"
        again, plain = load(directory), load(model.directory)
        plain.load_state_dict(weights_of(trainer), strict=False)
        plain.tie_weights()
        tokens = torch.from_numpy(BATCH.trajectories[0].columns["tokens"].astype(np.int64))[None]
        with torch.no_grad():
            gap = float((again(tokens).logits - plain(tokens).logits).abs().max())
        assert gap <= self.tolerance, f"the saved model's logits differ from those of the weights by {gap:.2g}"


def _batches() -> list[Batch]:
    random = np.random.default_rng(5)
    return [random_batch(random, vocabulary=32, step=step) for step in range(3, 7)]


BATCHES = _batches()
BATCH = BATCHES[0]


def _train(trainer: Trainer, batches: list[Batch]) -> list[dict[str, Any]]:
    return [dict(trainer.train(each)) for each in batches]


def _norm(tensors: dict[str, torch.Tensor]) -> float:
    return float(torch.stack([tensor.norm() for tensor in tensors.values()]).norm())
