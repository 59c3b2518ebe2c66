"""How units weigh in the loss: each scheme's denominator, over the whole optimizer batch.

Every scheme gives all units of a trajectory the same weight, so it maps `lengths` [S] (trained units)
and `counted` [S] (bool; none of length 0) to weights [S]. With N counted trajectories of lengths n_i:

| scheme | weight of a unit | sums to | used by |
|---|---|---|---|
| `sequence_mean` | 1 / (N n_i) | 1 | grpo, gspo |
| `token_mean` | 1 / sum_j n_j | 1 | dapo, cispo, reinforce++, ppo, sft |
| `constant(L)` | 1 / (N L) | mean length / L | dr-grpo |
| `sequence_sum` | 1 / N | mean length | rloo |

Losses of micro-batches are plain weighted sums, so that their sum is the batch's loss however it is split.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Aggregation = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _inverse(denominator: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """1 / denominator [S] on the counted trajectories, 0 on the others."""
    weights: np.ndarray = counted / np.maximum(denominator, 1)
    return weights


def sequence_mean(lengths: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mean over trajectories of the mean over units: each trajectory weighs the same."""
    return _inverse(lengths * counted.sum(), counted)


def token_mean(lengths: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mean over all units of the batch: each unit weighs the same."""
    return _inverse(np.full(len(lengths), lengths[counted].sum()), counted)


def sequence_sum(lengths: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """The mean over trajectories of the sum over units: the policy gradient of whole answers."""
    return _inverse(np.full(len(lengths), counted.sum()), counted)


def constant(length: int) -> Aggregation:
    """`sequence_sum` over a constant `length`, the same whatever was generated."""

    def weigh(lengths: np.ndarray, counted: np.ndarray) -> np.ndarray:
        return sequence_sum(lengths, counted) / length

    return weigh
