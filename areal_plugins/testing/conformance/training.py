"""Trainers as their workers build them, and one step of theirs in float64 by plain transformers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from attrs import define, evolve, field, frozen

from areal_core.batch import BatchArrays, LossInputs, Targets
from areal_core.contexts import OptimizerContext, OptimizerPlan, StagePlan, TrainerContext
from areal_core.data import Batch, Trajectory
from areal_core.protocols import Trainer
from areal_plugins.testing.conformance.reference import Reference
from areal_plugins.testing.conformance.subject import Subject

RATE = 0.5
"""The learning rate: large, so that rounding hides nothing of a gradient."""
MOST = 1.5
"""The largest ratio between the proximal policy and the one that drew the tokens."""


@define(eq=False)
class Surrogate:
    """`-sum_t w_t A_t min(pi_prox / pi_behaviour, MOST) pi / pi_prox`: the decoupled objective, unclipped.

    `A` is the reward less the batch's mean, `w` an equal share of every trained token. `broken_at` is
    a step whose weights are not finite; `seen` keeps what it was given.
    """

    needs_entropy: bool = False
    needs_reference: bool = False
    needs_critic: bool = False
    broken_at: int = -1
    seen: list[LossInputs] = field(factory=list)

    def keep(self, rewards: np.ndarray) -> bool:
        return True

    def targets(self, arrays: BatchArrays) -> Targets:
        advantages = (arrays.rewards - arrays.rewards.mean())[arrays.trajectory] * arrays.mask
        weights = arrays.mask / arrays.mask.sum()
        if arrays.step == self.broken_at:
            weights = np.full_like(weights, np.nan)
        return Targets(advantages, weights, returns=advantages)

    def loss(self, inputs: LossInputs) -> tuple[Any, Mapping[str, Any]]:
        self.seen.append(inputs)
        decoupled = (inputs.proximal - inputs.behaviour).exp().clamp(max=MOST)
        ratio = (inputs.logp - inputs.proximal).exp()
        loss = -(inputs.weights * inputs.advantages * inputs.mask * decoupled * ratio).sum()
        if inputs.values is not None:
            loss = loss + (inputs.weights * inputs.mask * (inputs.values - inputs.returns).square()).sum()
        return loss, {}


def descent(context: OptimizerContext) -> Any:
    """Plain gradient descent: what a step moves is the gradient."""
    return torch.optim.SGD([dict(group) for group in context.parameters], lr=context.learning_rate)


def momentum(context: OptimizerContext) -> Any:
    """Adam: what a step moves depends on those before."""
    return torch.optim.AdamW([dict(group) for group in context.parameters], lr=context.learning_rate)


def stage(
    objective: Surrogate | None = None, *, optimizer: Any = descent, rate: float = RATE, **changes: Any
) -> StagePlan:
    """A stage under a constant rate; fields of `OptimizerPlan` among `changes` go there."""
    plan = OptimizerPlan(build=optimizer, learning_rate=rate, total_steps=100)
    of_optimizer = {name: changes.pop(name) for name in list(changes) if hasattr(plan, name)}
    made = StagePlan("s", objective or Surrogate(), evolve(plan, **of_optimizer), batch_size=12)
    return evolve(made, **changes)


@frozen(eq=False)
class Stand:
    """Builds trainers, and closes them all in the end."""

    subject: Subject
    context: TrainerContext
    made: list[Trainer] = field(factory=list)

    def begin(self, plan: StagePlan | None = None, **context: Any) -> Trainer:
        """A fresh trainer, in a stage."""
        trainer: Trainer = self.subject.build(evolve(self.context, **context))
        self.made.append(trainer)
        trainer.begin_stage(plan or stage())
        return trainer

    def close(self) -> None:
        """Close every trainer."""
        for trainer in self.made:
            trainer.close()


def save(method: Callable[[Path], Callable[[], None] | None], directory: Path) -> None:
    """Have a trainer's `save_model` or `save_state` write all of it."""
    rest = method(directory)
    if rest is not None:
        rest()


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    """A copy of the weights, in float64 on the CPU."""
    return {name: torch.as_tensor(value).detach().double().cpu().clone() for name, value in trainer.weights()}


@frozen(eq=False)
class Step:
    """What one step should be: the loss, the gradient of each parameter, and the mean mismatch."""

    loss: float
    gradient: Mapping[str, torch.Tensor]
    mismatch: float

    @property
    def norm(self) -> float:
        """Of the whole gradient."""
        return float(torch.stack([g.norm() for g in self.gradient.values()]).norm())


@cache
def plain_step(reference: Reference, batch: Batch, temperature: float = 1.0) -> Step:
    """The step by the formula: one trajectory at a time, all logits, nothing clever."""
    model = copy.deepcopy(reference.model)
    trajectories = batch.trajectories
    mean, count = float(np.mean([t.reward for t in trajectories])), sum(t.trained_units for t in trajectories)
    loss, gaps = torch.zeros((), dtype=torch.float64), []
    for each in trajectories:
        logp, behaviour, current = _of(model, each, temperature, batch.step)
        weight = (logp.detach() - behaviour).exp().clamp(max=MOST) * (logp - logp.detach()).exp()
        loss = loss - (each.reward - mean) / count * weight.sum()
        gaps.append((logp.detach() - behaviour).abs()[current])
    loss.backward()  # type: ignore[no-untyped-call]
    gradient = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return Step(float(loss.detach()), gradient, float(torch.cat(gaps).mean()))


def _of(model: Any, each: Trajectory, temperature: float, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the trained tokens: log-probabilities, those of the behaviour, and which the current weights drew."""
    tokens = torch.from_numpy(each.columns["tokens"].astype(np.int64))[None]
    trained = torch.from_numpy(each.columns["mask"][1:] != 0)
    logits = model(tokens, use_cache=False).logits[0, :-1] / temperature
    logp = logits.log_softmax(-1).gather(1, tokens[0, 1:, None]).squeeze(1)
    behaviour = torch.from_numpy(each.columns["logprobs"][1:].astype(np.float64))
    current = torch.from_numpy(each.columns["versions"][1:] == step)
    return logp[trained], behaviour[trained], current[trained]


def largest_gap(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> tuple[str, float]:
    """The tensor that differs most, and by how much of the norm of all of `two` together."""
    assert one.keys() >= two.keys(), f"there is no weight {', '.join(sorted(two.keys() - one.keys()))}"
    norm = float(torch.stack([value.norm() for value in two.values()]).norm())
    gaps = {name: float((one[name] - value).norm()) / (norm or 1.0) for name, value in two.items()}
    worst = max(gaps, key=gaps.__getitem__)
    return worst, gaps[worst]


def moved(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], rate: float
) -> dict[str, torch.Tensor]:
    """The gradient that descent at `rate` has followed."""
    return {name: (before[name] - after[name]) / rate for name in before}


def differing(one: Mapping[str, torch.Tensor], two: Mapping[str, torch.Tensor]) -> Sequence[str]:
    """The names of the tensors that differ in any bit."""
    return [name for name in one if not torch.equal(one[name], two[name])]
