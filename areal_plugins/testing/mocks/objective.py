"""An objective in one line of mathematics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from areal_core.batch import BatchArrays, LossInputs, Targets
from areal_core.contexts import ObjectiveContext
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import ObjectiveOptions


def make(options: ObjectiveOptions, _context: ObjectiveContext) -> MockObjective:
    """The factory."""
    return MockObjective(options)


class MockObjective:
    """REINFORCE (Williams, 1992) with a baseline: the mean over units of minus log-probability times advantage."""

    needs_entropy = False
    needs_reference = False
    needs_critic = False

    def __init__(self, options: ObjectiveOptions) -> None:
        self._options, self._conduct = options, Conduct(options)

    def keep(self, rewards: np.ndarray) -> bool:
        self._conduct.act_here("keep")
        return float(np.ptp(rewards)) >= self._options.least_spread

    def targets(self, arrays: BatchArrays) -> Targets:
        self._conduct.act_here("targets")
        advantages = (arrays.rewards - arrays.rewards.mean())[arrays.trajectory]
        return Targets(advantages=advantages, weights=arrays.mask / max(1.0, float(arrays.mask.sum())))

    def loss(self, inputs: LossInputs) -> tuple[Any, Mapping[str, Any]]:
        self._conduct.act_here("loss")
        return -(inputs.weights * inputs.advantages * inputs.logp).sum(), {}
