"""The critic's term."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from areal_core.batch import LossInputs

if TYPE_CHECKING:
    from torch import Tensor


def value_loss(inputs: LossInputs, coefficient: float, clip: float | None) -> tuple[Tensor, Mapping[str, Tensor]]:
    """`c / 2 * max((V - R)^2, (V_clip - R)^2)` a unit [t], where `V_clip` stays within `clip` of the value
    at the start of the step; the larger error counts, so that the clip only ever holds back
    (arXiv 2005.12729).
    """
    error = (inputs.values - inputs.returns).square()
    if clip is not None:
        near = inputs.old_values + (inputs.values - inputs.old_values).clamp(-clip, clip)
        error = error.maximum((near - inputs.returns).square())
    return coefficient / 2 * error, {"value_loss": error / 2}
