"""Who may look at whom."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_plugins.builtin.trainer.attention import attend
from areal_plugins.builtin.trainer.grid import Grid
from areal_plugins.builtin.trainer.packing import Layout

CPU = torch.device("cpu")


@st.composite
def layouts(draw):
    groups, members = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    common = np.array(draw(st.lists(st.integers(0, 6), min_size=groups, max_size=groups)))
    rest = np.array(draw(st.lists(st.integers(0, 5), min_size=groups * members, max_size=groups * members)))
    rest = rest.reshape(groups, members)
    rest[:, 0] = np.maximum(rest[:, 0], 1 - np.minimum(common, 1))  # no group is empty
    return Layout(common, rest)


def seen(layout, window=None):
    """[X, X] bool from the definition: the common part before it, and its own tokens before it."""
    total = int(layout.segments.sum())
    looks = np.zeros((total, total), dtype=bool)
    position = np.zeros(total, dtype=int)
    for g, common in enumerate(layout.common):
        head = layout.offsets[g, 0] + np.arange(common)
        position[head] = np.arange(common)
        looks[np.ix_(head, head)] = np.tri(common, dtype=bool)
        for m, size in enumerate(layout.rest[g]):
            own = layout.offsets[g, 1 + m] + np.arange(size)
            position[own] = common + np.arange(size)
            looks[np.ix_(own, head)] = True
            looks[np.ix_(own, own)] = np.tri(size, dtype=bool)
    if window is not None:
        looks &= position[:, None] - position[None] < window
    return torch.from_numpy(looks)


def tensors(layout, heads, fold):
    generator = torch.Generator().manual_seed(0)
    total = int(layout.segments.sum())
    sizes = (heads * fold * 4, heads * 4, heads * 4)
    return [torch.randn(total, s, dtype=torch.float64, generator=generator, requires_grad=True) for s in sizes]


def dense(q, k, v, looks, heads, fold):
    total = len(q)
    q, k, v = q.view(total, heads * fold, 4), k.view(total, heads, 4), v.view(total, heads, 4)
    k, v = k.repeat_interleave(fold, dim=1), v.repeat_interleave(fold, dim=1)
    scores = torch.einsum("qhd,khd->hqk", q, k) * 0.3
    weights = scores.masked_fill(~looks, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v).flatten(1)


@settings(max_examples=40, deadline=None)
@given(layouts(), st.sampled_from([None, 3]), st.sampled_from([(1, 1), (2, 3)]))
def test_packed_attention_is_dense_attention_under_the_definitions_mask(layout, window, heads):
    inputs = tensors(layout, *heads)
    ours = attend(*inputs, Grid(layout, CPU), heads[0], 0.3, window)
    theirs = dense(*inputs, seen(layout, window), *heads)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    slope = torch.randn_like(ours)
    for mine, other in zip(*(torch.autograd.grad(o, inputs, slope) for o in (ours, theirs)), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def test_queries_of_the_common_part_are_shared_out_among_the_rows():
    grid = Grid(Layout(np.array([8]), np.array([[3, 3, 3, 3]])), CPU)
    assert (grid.rows, grid.queries) == (4, 2 + 3)


def test_rows_of_keys_are_filled_up_to_whole_vectors():
    assert Grid(Layout(np.array([8]), np.array([[3, 3]])), CPU).keys == 16
    assert Grid(Layout(np.array([5]), np.array([[3, 1]])), CPU).keys == 8


@pytest.mark.parametrize("softcap", [None, 2.0])
def test_gradients_pass_a_numerical_check(softcap):
    layout = Layout(np.array([2, 0]), np.array([[1, 2], [2, 0]]))
    grid = Grid(layout, CPU)
    assert torch.autograd.gradcheck(lambda *x: attend(*x, grid, 1, 0.5, None, softcap), tensors(layout, 1, 2))
