"""One step after another: plan, compute, draw, record. Knows nothing of asyncio."""

from __future__ import annotations

import time

import torch

from areal_core.data import WeightVersion
from areal_plugins import ComponentError
from areal_plugins.builtin.engine.runner import Runner
from areal_plugins.builtin.engine.sampling import sample
from areal_plugins.builtin.engine.scheduler import Scheduler


class Core:
    """Drives `scheduler` with the logits of `runner`; every token drawn carries `version`."""

    def __init__(self, runner: Runner, scheduler: Scheduler, version: WeightVersion) -> None:
        self.runner, self.scheduler, self.version = runner, scheduler, version
        self.generated_tokens = self.prefilled_tokens = 0
        self.busy_seconds = 0.0

    @torch.inference_mode()
    def step(self) -> bool:
        """Compute one step; False when there was nothing to compute.

        Raises:
            ComponentError: the logits are not finite, so that nothing can be drawn.

        """
        started = time.perf_counter()
        plan = self.scheduler.plan()
        if plan is None:
            return False
        logits = self.runner.logits(plan)
        for draw, ids in self.scheduler.too_early(plan):
            logits[draw, torch.from_numpy(ids).to(logits.device)] = -torch.inf
        drawn = sample(logits, self.scheduler.draws(plan))
        tokens, logprobs = (column.cpu().numpy() for column in drawn)
        if not (logprobs > -float("inf")).all():
            problem = f"under weights {self.version} the model gives logits that are not finite"
            raise ComponentError("engine/torch", "generate", problem)
        self.scheduler.record(plan, tokens, logprobs, self.version.code)
        self.generated_tokens += len(tokens)
        self.prefilled_tokens += sum(chunk.size for chunk in plan.chunks)
        self.busy_seconds += time.perf_counter() - started
        return True
