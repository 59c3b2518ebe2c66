from __future__ import annotations

import math

import pytest
import torch
from attrs import evolve
from torch import Tensor

from areal_core.batch import LossInputs
from areal_plugins.builtin.objectives.options import Level, PolicyOptions
from areal_plugins.builtin.objectives.ratio import at_level, behaviour_weight, trajectory_sum


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.fixture
def inputs() -> LossInputs:
    """Trajectories of three units (one of them not drawn) and of one; the log-ratios are .1, 0, .3 and -.2."""
    return LossInputs(
        logp=column(0, 0, 0, 0),
        proximal=column(-1.0, 0.0, -1.0, -1.0),
        behaviour=column(-1.1, 0.0, -1.3, -0.8),
        advantages=column(1, 1, 1, 1),
        weights=column(1, 1, 1, 1),
        mask=column(1, 0, 1, 1),
        trajectory=torch.tensor([0, 0, 0, 1]),
        lag=torch.zeros(4, dtype=torch.int64),
    )


def test_sums_are_a_trajectorys_own() -> None:
    sums = trajectory_sum(column(1, 2, 3, 4), torch.tensor([1, 0, 1, 0]))
    assert sums.tolist() == [4, 6, 4, 6]


@pytest.mark.parametrize(
    ("level", "expected"),
    [("token", [0.1, 0.0, 0.3, -0.2]), ("sequence", [0.4, 0.4, 0.4, -0.2]), ("geometric", [0.2, 0.2, 0.2, -0.2])],
)
def test_levels(inputs: LossInputs, level: Level, expected: list[float]) -> None:
    assert at_level(inputs.proximal - inputs.behaviour, inputs, level).tolist() == pytest.approx(expected)


def test_weights_are_truncated_at_the_cap(inputs: LossInputs) -> None:
    weight, over = behaviour_weight(inputs, PolicyOptions(behaviour_cap=1.2))
    assert weight.tolist() == pytest.approx([math.exp(0.1), 1.0, 1.2, math.exp(-0.2)])
    assert over.tolist() == [0, 0, 1, 0]


def test_weights_are_masked_beyond_the_cap(inputs: LossInputs) -> None:
    weight, _ = behaviour_weight(inputs, PolicyOptions(behaviour_cap=1.2, behaviour_excess="mask"))
    assert weight.tolist() == pytest.approx([math.exp(0.1), 1.0, 0.0, math.exp(-0.2)])


def test_a_sequence_over_the_cap_is_masked_whole(inputs: LossInputs) -> None:
    options = PolicyOptions(behaviour_cap=1.2, behaviour_excess="mask", behaviour_level="sequence")
    assert behaviour_weight(inputs, options)[0].tolist() == pytest.approx([0, 0, 0, math.exp(-0.2)])


def test_without_a_cap_weights_are_the_ratio(inputs: LossInputs) -> None:
    far = evolve(inputs, behaviour=column(-9.0, 0.0, -1.3, -0.8))
    assert float(behaviour_weight(far, PolicyOptions(behaviour_cap=None))[0][0]) == pytest.approx(math.exp(8.0))


def test_weights_carry_no_gradient(inputs: LossInputs) -> None:
    attached = evolve(inputs, proximal=inputs.proximal.clone().requires_grad_(True))
    assert not behaviour_weight(attached, PolicyOptions())[0].requires_grad


def test_an_overflowing_sequence_ratio_stays_within_the_cap(inputs: LossInputs) -> None:
    far = evolve(inputs, behaviour=column(-900.0, 0.0, -900.0, -0.8))
    options = PolicyOptions(behaviour_cap=5.0, behaviour_level="sequence")
    assert behaviour_weight(far, options)[0].tolist()[:3] == [5.0, 5.0, 5.0]
