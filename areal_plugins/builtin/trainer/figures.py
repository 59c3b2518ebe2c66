"""The figures of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from attrs import Factory, define

from areal_plugins.builtin.trainer.units import Units


def of_batch(units: Units) -> dict[str, float]:
    """What is known before any model runs. `tokens` counts trained tokens, `lag/*` is over those a policy drew."""
    arrays = units.arrays
    figures = {
        "tokens": float(len(units.trained)),
        "reward": float(arrays.rewards.mean()),
        "reward_std": float(arrays.rewards.std()),
        "truncated": float(arrays.truncated.mean()),
        "length/mean": float(units.lengths.mean()),
    }
    lag = arrays.lag[units.trained[units.drawn]]
    return figures | ({"lag/mean": float(lag.mean()), "lag/max": float(lag.max())} if lag.size else {})


def mismatch(units: Units, logp: np.ndarray) -> dict[str, float]:
    """Mean |trainer - engine| log-probability over tokens drawn by the very weights that scored them.

    `logp` [T] is the policy at the start of the step. Nothing when no such token is in the batch.
    """
    current = units.trained[units.drawn & (units.arrays.lag[units.trained] == 0)]
    if not current.size:
        return {}
    return {"mismatch": float(np.abs(logp[current] - units.arrays.behaviour[current]).mean())}


@define
class Tally:
    """Sums over micro-batches, kept on the device until the end of the step."""

    sums: dict[str, Any] = Factory(dict)

    def add(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.sums[name] = self.sums[name] + value if name in self.sums else value

    def means(self, count: int) -> dict[str, float]:
        """All sums over `count` units, in one transfer."""
        if not self.sums:
            return {}
        stacked = torch.stack([torch.as_tensor(value).to(torch.float64) for value in self.sums.values()])
        return dict(zip(self.sums, (stacked / max(count, 1)).tolist(), strict=True))


def of_moves(moves: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over a batch's optimizer steps; `learning_rate` is the last one's, flags say whether any was so."""
    means = {name: sum(move[name] for move in moves) / len(moves) for name in (moves[0] if moves else {})}
    flags = {name: float(any(move[name] for move in moves)) for name in ("clipped", "skipped", "exploded")}
    return means | flags | ({"learning_rate": moves[-1]["learning_rate"]} if moves else {})


def finite(figures: Mapping[str, float]) -> dict[str, float]:
    """What can be logged: a figure that is not a finite number is left out."""
    return {name: float(value) for name, value in figures.items() if math.isfinite(value)}
