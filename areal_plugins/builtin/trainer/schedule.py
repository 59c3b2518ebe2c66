"""The learning rate at each optimizer step."""

from __future__ import annotations

import math

from areal_core.contexts import OptimizerPlan


def learning_rate(plan: OptimizerPlan, step: int, updates: int = 1, mean_lag: float = 0.0) -> float:
    """The rate of optimizer step `step` (from 0) of the stage.

    A linear rise over `warmup_steps` optimizer steps, the first of which is not 0; then, as the share
    x of what is left goes from 0 to 1, `constant` 1, `linear` 1 - x or `cosine` (1 + cos(pi x)) / 2,
    scaled to end at `min_ratio`. Stale batches take smaller steps: the rate is divided by
    `1 + lag_decay * mean_lag`. `plan.total_steps` counts batches of `updates` optimizer steps.
    """
    rate = plan.learning_rate * _shape(plan, step, plan.total_steps * updates)
    return rate / (1.0 + plan.lag_decay * mean_lag)


def _shape(plan: OptimizerPlan, step: int, total: int) -> float:
    if step < plan.warmup_steps:
        return (step + 1) / plan.warmup_steps
    if plan.schedule == "constant":
        return 1.0
    passed = min((step - plan.warmup_steps) / max(total - plan.warmup_steps, 1), 1.0)
    decay = {"linear": 1.0 - passed, "cosine": (1.0 + math.cos(math.pi * passed)) / 2}[plan.schedule]
    return plan.min_ratio + (1.0 - plan.min_ratio) * decay
