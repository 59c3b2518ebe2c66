from __future__ import annotations

import numpy as np
import pytest

from areal_plugins.builtin.objectives.aggregation import (
    Aggregation,
    constant,
    sequence_mean,
    sequence_sum,
    token_mean,
)

LENGTHS = np.array([2, 4, 0, 10])
COUNTED = np.array([True, True, False, False])


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (sequence_mean, [1 / 4, 1 / 8, 0, 0]),
        (token_mean, [1 / 6, 1 / 6, 0, 0]),
        (sequence_sum, [1 / 2, 1 / 2, 0, 0]),
        (constant(16), [1 / 32, 1 / 32, 0, 0]),
    ],
)
def test_weights_use_the_counted_trajectories_alone(aggregate: Aggregation, expected: list[float]) -> None:
    np.testing.assert_allclose(aggregate(LENGTHS, COUNTED), expected, rtol=1e-15)


@pytest.mark.parametrize("aggregate", [sequence_mean, token_mean, sequence_sum, constant(16)])
def test_nothing_counted_weighs_nothing(aggregate: Aggregation) -> None:
    assert not aggregate(LENGTHS, np.zeros(4, dtype=bool)).any()


@pytest.mark.parametrize("aggregate", [sequence_mean, token_mean])
def test_means_have_weights_that_sum_to_one(aggregate: Aggregation) -> None:
    counted = LENGTHS > 0
    assert (aggregate(LENGTHS, counted) * LENGTHS).sum() == pytest.approx(1.0)
