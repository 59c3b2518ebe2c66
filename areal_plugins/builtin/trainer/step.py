"""One batch: score what the objective needs, make its targets, and take the optimizer steps.

On several ranks each would take every size-th micro-batch of a part and sum scores, tallies and
gradients over all before `_move`; targets are a function of the whole batch, so the same everywhere.
"""

from __future__ import annotations

import math
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from areal_plugins.builtin.trainer import figures, gradients
from areal_plugins.builtin.trainer.columns import BatchColumns, Outputs, loss_inputs
from areal_plugins.builtin.trainer.loss_scale import LossScale
from areal_plugins.builtin.trainer.micro import place
from areal_plugins.builtin.trainer.packing import Packed
from areal_plugins.builtin.trainer.parts import Part, parts
from areal_plugins.builtin.trainer.policy import Policy
from areal_plugins.builtin.trainer.scoring import log_probabilities, spread, with_models
from areal_plugins.builtin.trainer.stage import Stage
from areal_plugins.builtin.trainer.units import Units


class Step:
    """Trains `stage` on the batch of `units`, at most `budget` tokens at a time.

    A gradient that is not finite, or whose norm is over `limit`, is not applied.
    """

    def __init__(
        self, policy: Policy, stage: Stage, scale: LossScale, units: Units, budget: int, limit: float | None = None
    ) -> None:
        self._policy, self._stage, self._scale, self._units = policy, stage, scale, units
        self._limit = math.inf if limit is None else limit
        self._parts = parts(units, stage.plan.updates, budget)
        self._known = figures.of_batch(units)
        self._tally = figures.Tally()
        self._moves: list[dict[str, float]] = []

    def run(self) -> dict[str, float]:
        """The figures of the step."""
        policy, stage, units = self._policy, self._stage, self._units
        count = len(units.arrays.mask)
        self._forget()  # what a step that failed half-way may have left
        stage.renew_reference()
        every = [packed for part in self._parts for packed in part.packed]
        moves = len(self._parts) > 1
        proximal = log_probabilities(policy, stage.plan.temperature, every, count) if moves else None
        arrays = with_models(policy, stage, units, every)
        targets = stage.plan.objective.targets(arrays)
        columns = BatchColumns(arrays, targets, proximal)
        scored = [pair for part in self._parts for pair in self._update(part, columns)]
        stage.batches += 1
        return {
            **self._known,
            **targets.metrics,
            **self._tally.means(len(units.trained)),
            **figures.of_moves(self._moves),
            **figures.mismatch(units, spread(scored, count) if proximal is None else proximal),
        }

    def _update(self, part: Part, columns: BatchColumns) -> list[tuple[np.ndarray, Tensor]]:
        """One optimizer step; the part's log-probabilities as they were before it."""
        done = [self._accumulate(packed, columns, part.share) for packed in part.packed]
        self._move(sum(loss.item() for loss, _ in done))
        return [(packed.units, logp) for packed, (_, logp) in zip(part.packed, done, strict=True)]

    def _accumulate(self, packed: Packed, columns: BatchColumns, share: float) -> tuple[Tensor, Tensor]:
        """Add a micro-batch's gradient; its share of the loss, and log-probabilities [t]."""
        stage, objective = self._stage, self._stage.plan.objective
        micro = place(packed, self._policy.device)
        with torch.no_grad() if stage.holds_policy else nullcontext():
            logp, entropy = self._policy.score(micro, stage.plan.temperature, objective.needs_entropy)
        values = stage.critic.score(micro) if stage.critic else None
        outputs = Outputs(logp, entropy if objective.needs_entropy else None, values)
        leaves = outputs.detached()
        loss, sums = objective.loss(loss_inputs(columns, share, packed, leaves))
        gradients.backward(loss, leaves, outputs, self._scale.value)
        self._tally.add({"entropy": entropy.detach().sum(), **sums})
        return loss.detach(), logp.detach()

    def _move(self, loss: float) -> None:
        stage, plan = self._stage, self._stage.plan.optimizer
        learners, rate = stage.learners, stage.rate(self._known.get("lag/mean", 0.0))
        norms = [learner.measure(self._scale.value) for learner in learners]
        finite = all(map(math.isfinite, (loss, *norms)))
        exploded = finite and not stage.holds_policy and stage.learner.norm > self._limit
        sound = finite and not exploded
        clipped = [learner.step(rate, plan.grad_clip) for learner in learners] if sound else []
        self._scale.update(finite)
        self._forget()
        stage.steps += 1
        self._moves.append(
            {
                "loss": loss,
                "grad_norm": stage.learner.norm,
                "learning_rate": rate,
                "clipped": float(any(clipped)),
                "skipped": float(not sound),
                "exploded": float(exploded),
                **({"critic_grad_norm": stage.critic_learner.norm} if stage.critic_learner else {}),
            }
        )

    def _forget(self) -> None:
        for learner in self._stage.learners:
            learner.forget()
