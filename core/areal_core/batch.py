"""A batch as an objective sees it: arrays over all its trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    import numpy as np


@frozen(eq=False)
class BatchArrays:
    """A batch as ragged columns: S trajectories one after another, T units in all, shared prompts left out.

    Per trajectory [S]: `rewards` float64, `group` int64 (0..G-1), `truncated` bool.
    Per unit [T]: `trajectory` int64 (0..S-1), `mask` float64, `behaviour` float64 (log-probabilities),
    `lag` int64 (batch step minus version step; 0 where not drawn), and where the objective's
    capabilities ask for them `reference` (log-probabilities) and `values` (the critic's, of the state
    before the unit is drawn) float64.
    """

    step: int
    rewards: np.ndarray
    group: np.ndarray
    truncated: np.ndarray
    trajectory: np.ndarray
    mask: np.ndarray
    behaviour: np.ndarray
    lag: np.ndarray
    reference: np.ndarray | None = None
    values: np.ndarray | None = None


@frozen(eq=False)
class Targets:
    """What an objective makes of a batch before any gradient: all [T] float64.

    `advantages` a unit; `weights` a unit, already normalized over the whole batch, so that
    micro-batch losses simply add; `returns` for a critic. `metrics` go into the step's figures.

    Where a batch is split by whole groups into several updates, advantages stay those of the batch and
    a part's weights are multiplied by S / S_part, whatever the objective: the parts' losses, each
    weighted by its share of the trajectories, average to the batch's.
    """

    advantages: np.ndarray
    weights: np.ndarray
    returns: np.ndarray | None = None
    metrics: Mapping[str, float] = field(factory=dict)


@frozen(eq=False)
class LossInputs:
    """One micro-batch of whole trajectories, as torch tensors [t]; only `logp`, `entropy` and
    `values` carry gradients. A backend may leave out units whose mask is 0.

    `proximal` is the policy at the start of the step (detached), `trajectory` counts 0..s-1 within
    the micro-batch. `entropy` is None unless the objective asked for it.
    """

    logp: Any
    proximal: Any
    behaviour: Any
    advantages: Any
    weights: Any
    mask: Any
    trajectory: Any
    lag: Any
    entropy: Any = None
    reference: Any = None
    values: Any = None
    old_values: Any = None
    returns: Any = None
