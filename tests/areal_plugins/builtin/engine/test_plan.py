from itertools import combinations, pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from areal_plugins.builtin.engine.attention import Chunk
from areal_plugins.builtin.engine.plan import Planner, cut, side_by_side
from areal_plugins.builtin.engine.rows import Rows


def table(*sequences: tuple[int, int], follows: tuple[int, ...] = ()) -> Rows:
    """Rows of (tokens known, tokens cached), whose tokens count from 100 times the row."""
    rows = Rows(len(sequences))
    rows.reserve(50)
    for row, (total, cached) in enumerate(sequences):
        columns = dict.fromkeys(rows.state, 0)
        columns |= {"total": total, "cached": cached, "prompt": total, "order": row, "follows": row in follows}
        rows.write([row], columns, 100 * row + np.arange(total), ())
    return rows


def cost(lengths: list[int], ends: tuple[int, ...], call: float) -> float:
    bounds = [0, *ends, len(lengths)]
    return sum(call + (b - a) * max(lengths[a:b]) for a, b in pairwise(bounds))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=8), st.floats(0, 80))
def test_runs_are_cut_where_it_costs_least(lengths, call):
    runs = list(cut(np.arange(len(lengths)), np.array(lengths), call))
    assert [a for a, _ in runs] == [0, *(b for _, b in runs[:-1])]
    assert runs[-1][1] == len(lengths)
    inner = range(1, len(lengths))
    best = min(cost(lengths, ends, call) for k in range(len(lengths)) for ends in combinations(inner, k))
    assert cost(lengths, tuple(b for _, b in runs[:-1]), call) <= best + 1e-9


def test_runs_end_where_a_row_does_not_decode():
    assert list(cut(np.array([0, 1, 4, 5, 7]), np.full(5, 9), 100)) == [(0, 2), (2, 4), (4, 5)]


def test_a_step_of_decoding_rows_takes_their_last_tokens():
    plan = Planner(10).plan(table((3, 2), (5, 4)), 2, {}, 1.0)
    assert plan.tokens.tolist() == [2, 104]
    assert plan.positions.tolist() == [2, 4]
    assert plan.sampled.tolist() == plan.rows.tolist() == [0, 1]
    assert [(r.row, r.count, r.longest, r.shortest) for r in plan.runs] == [(0, 2, 5, 3)]


def test_prompts_follow_the_decoding_tokens_within_the_budget():
    plan = Planner(6).plan(table((4, 0), (3, 2), (7, 3)), 3, {}, 1.0)
    assert plan.tokens.tolist() == [102, 0, 1, 2, 3, 203, 204]
    assert plan.chunks == [Chunk(1, 0, 0, 4), Chunk(5, 2, 3, 2)]
    assert plan.sampled.tolist() == [1, 0]
    assert plan.keep.tolist() == [0, 4]


def test_followers_draw_from_their_leaders_logits():
    plan = Planner(9).plan(table((4, 0), (4, 0), (4, 0), follows=(1, 2)), 3, {0: [1, 2]}, 1.0)
    assert plan.keep.tolist() == [3]
    assert plan.sampled.tolist() == [0, 1, 2]
    assert plan.draw.tolist() == [0, 0, 0]


def test_nothing_to_compute_is_no_plan():
    assert Planner(9).plan(table(), 0, {}, 1.0) is None


def test_fresh_chunks_of_equal_size_are_joined():
    chunks = [Chunk(0, 5, 0, 3), Chunk(3, 6, 0, 3), Chunk(6, 7, 0, 2), Chunk(8, 8, 2, 2), Chunk(10, 9, 0, 2)]
    assert side_by_side(chunks) == [
        Chunk(0, 5, 0, 3, copies=2),
        Chunk(6, 7, 0, 2),
        Chunk(8, 8, 2, 2),
        Chunk(10, 9, 0, 2),
    ]
