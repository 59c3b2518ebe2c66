"""A batch as successive optimizer steps, and each of those as micro-batches."""

from __future__ import annotations

import numpy as np
from attrs import frozen

from areal_plugins.builtin.trainer.packing import Packed, pack, split
from areal_plugins.builtin.trainer.units import Units


@frozen(eq=False)
class Part:
    """What one optimizer step consumes: `share` of the batch's trajectories, packed into micro-batches.

    The step's loss is the part's share of the batch's loss divided by `share`. So a unit weighs in it
    as it does among the whole batch, whatever the objective's normalization, and the parts' gradients
    at one point average to the batch's.
    """

    share: float
    packed: list[Packed]


def parts(units: Units, updates: int, budget: int) -> list[Part]:
    """At most `updates` parts of about as many trajectories each, in order; groups stay whole where they suffice."""
    place = _places(units, updates)
    chosen = [place == k for k in np.unique(place)]
    return [Part(float(c.mean()), [pack(units, pieces) for pieces in split(units, c, budget)]) for c in chosen]


def _places(units: Units, updates: int) -> np.ndarray:
    """[S] which part a trajectory is in."""
    count = len(units.starts)
    order = np.arange(count)
    if len(units.members) >= updates:
        order = np.concatenate([np.full(len(members), members[0]) for members in units.members])
    places: np.ndarray = order * updates // count
    return places
