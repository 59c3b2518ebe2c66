"""What must not matter, for every objective: micro-batches, order, padding; and what updates add up to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from attrs import evolve, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_core.batch import BatchArrays
from areal_core.protocols import Objective

CASES: list[tuple[str, dict[str, Any]]] = [
    ("grpo", {}),
    ("grpo", {"decoupled": False, "scale": "batch"}),
    ("grpo", {"kl": 0.1, "entropy": 0.05, "mask_truncated": True}),
    ("grpo", {"behaviour_level": "sequence", "behaviour_cap": 2.0, "behaviour_excess": "mask"}),
    ("dr-grpo", {"equal_groups": "count"}),
    ("dapo", {"overlong_buffer": 4, "mask_truncated": True}),
    ("gspo", {"clip_low": 0.2, "clip_high": 0.3}),
    ("gspo", {"kl": 0.1, "decoupled": False}),
    ("cispo", {"clip_high": 0.5}),
    ("cispo", {"decoupled": True}),
    ("rloo", {"kl": 0.1}),
    ("reinforce++", {"kl": 0.1}),
    ("reinforce++", {"baseline": "group", "entropy": 0.1}),
    ("ppo", {"kl": 0.1, "entropy": 0.1}),
    ("sft", {}),
]
every_objective = pytest.mark.parametrize(("name", "options"), CASES, ids=str)


@frozen(eq=False)
class Shape:
    """What a batch is made of."""

    rewards: list[float]
    group: list[int]
    masks: list[list[int]]
    truncated: list[bool]
    seed: int


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    """One to four groups of one to four members, each of up to five units, drawn or not."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    group = [g for g, size in enumerate(sizes) for _ in range(size)]
    each = {"min_size": len(group), "max_size": len(group)}
    return Shape(
        rewards=draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, -2.0]), **each)),
        group=group,
        masks=draw(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), **each)),
        truncated=draw(st.lists(st.booleans(), **each)),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def same(first: Any, second: Any) -> None:
    for column in ("logp", "entropy", "values"):
        np.testing.assert_allclose(getattr(first, column), getattr(second, column), rtol=1e-9, atol=1e-12)
    assert first.loss == pytest.approx(second.loss, rel=1e-9, abs=1e-12)
    assert first.metrics == pytest.approx(second.metrics, rel=1e-9, abs=1e-12)


@every_objective
@settings(max_examples=25, deadline=None)
@given(shape=shapes(), data=st.data())
def test_any_split_into_micro_batches_gives_the_same_loss_gradient_and_metrics(
    name: str,
    options: dict[str, Any],
    shape: Shape,
    data: st.DataObject,
    objective: Callable[..., Objective],
    batch: Callable[..., BatchArrays],
    policies: Callable[..., Any],
    outcome: Callable[..., Any],
) -> None:
    arrays = batch(shape.rewards, shape.group, shape.masks, shape.truncated, shape.seed)
    moved, made = policies(arrays, shape.seed), objective(name, **options)
    order = data.draw(st.permutations(range(len(shape.rewards))))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(order)), max_size=3)))
    parts = [order[a:b] for a, b in zip([0, *cuts], [*cuts, len(order)], strict=True) if a < b]
    same(outcome(made, arrays, moved), outcome(made, arrays, moved, parts))


@every_objective
@settings(max_examples=15, deadline=None)
@given(shape=shapes(), data=st.data())
def test_the_order_of_trajectories_does_not_matter(
    name: str,
    options: dict[str, Any],
    shape: Shape,
    data: st.DataObject,
    objective: Callable[..., Objective],
    batch: Callable[..., BatchArrays],
    policies: Callable[..., Any],
    outcome: Callable[..., Any],
    rearranged: Callable[..., Any],
) -> None:
    arrays = batch(shape.rewards, shape.group, shape.masks, shape.truncated, shape.seed)
    moved, made = policies(arrays, shape.seed), objective(name, **options)
    order = data.draw(st.permutations(range(len(shape.rewards))))
    after = outcome(made, *rearranged(arrays, moved, order))
    before = outcome(made, arrays, moved)
    rows = np.concatenate([np.flatnonzero(arrays.trajectory == s) for s in order])
    columns = {column: getattr(before, column)[rows] for column in ("logp", "entropy", "values")}
    same(after, evolve(before, **columns))


@every_objective
def test_units_that_were_not_drawn_do_not_matter_whatever_stands_there(
    name: str,
    options: dict[str, Any],
    objective: Callable[..., Objective],
    batch: Callable[..., BatchArrays],
    policies: Callable[..., Any],
    outcome: Callable[..., Any],
) -> None:
    arrays = batch([1.0, 0.0], [0, 0], [[0, 1, 0, 1], [1, 1, 0]])
    moved, made = policies(arrays), objective(name, **options)
    off = arrays.mask == 0
    spoilt = {
        column: np.where(off, np.nan, getattr(moved, column)) for column in ("logp", "proximal", "entropy", "values")
    }
    columns = {
        column: np.where(off, np.nan, getattr(arrays, column)) for column in ("behaviour", "reference", "values")
    }
    same(outcome(made, arrays, moved), outcome(made, evolve(arrays, **columns), evolve(moved, **spoilt)))


@every_objective
def test_the_parts_of_several_updates_average_to_the_batch(
    name: str,
    options: dict[str, Any],
    objective: Callable[..., Objective],
    batch: Callable[..., BatchArrays],
    policies: Callable[..., Any],
    outcome: Callable[..., Any],
) -> None:
    arrays = batch([1.0, 0.0, 0.5, 0.0, 2.0], [0, 0, 1, 1, 1], [[1, 1], [1], [1, 0, 1], [1], [1, 1, 1, 1]])
    moved, made = policies(arrays), objective(name, **options)
    parts = [[0, 1], [2, 3, 4]]  # whole groups; each weighs S / S_part
    results = [outcome(made, arrays, moved, [part], weigh=5 / len(part)) for part in parts]
    mean = sum(len(part) / 5 * result.loss for part, result in zip(parts, results, strict=True))
    assert mean == pytest.approx(outcome(made, arrays, moved).loss, rel=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "ppo"])
@settings(max_examples=15, deadline=None)
@given(shape=shapes())
def test_decoupled_is_naive_where_the_proximal_policy_is_the_behaviour_policy(
    name: str,
    shape: Shape,
    objective: Callable[..., Objective],
    batch: Callable[..., BatchArrays],
    policies: Callable[..., Any],
    outcome: Callable[..., Any],
) -> None:
    arrays = batch(shape.rewards, shape.group, shape.masks, shape.truncated, shape.seed)
    moved = evolve(policies(arrays, shape.seed), proximal=arrays.behaviour)
    decoupled = outcome(objective(name, decoupled=True), arrays, moved)
    naive = outcome(objective(name, decoupled=False), arrays, moved)
    np.testing.assert_allclose(decoupled.logp, naive.logp, rtol=1e-12)
    assert decoupled.loss == pytest.approx(naive.loss, rel=1e-12)
