"""What one step computes: which tokens of which rows, and how they lie side by side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from attrs import define, field, frozen

from areal_plugins.builtin.engine.attention import Chunk, Run
from areal_plugins.builtin.engine.rows import Rows

_CALL_BYTES = 100_000
"""Bytes of keys and values of a layer that are read in the time of one attention call (on a CPU core)."""

_RECUT = 32
"""Steps after which runs are cut anew although the same rows decode: their lengths have grown."""


@frozen(eq=False)
class Plan:
    """T packed tokens: one for each decoding row, then the chunks.

    `tokens`, `positions`, `rows` are [T] int64. Logits are wanted at the tokens `keep`; the rows
    `sampled` [S] draw from those at `draw` [S] of them, because followers share their leader's.
    """

    tokens: np.ndarray
    positions: np.ndarray
    rows: np.ndarray
    runs: Sequence[Run]
    chunks: Sequence[Chunk]
    keep: np.ndarray
    sampled: np.ndarray
    draw: np.ndarray


@define
class Planner:
    """Packs steps. `prefill_tokens` bounds the chunks of one step."""

    prefill_tokens: int
    _decoding: np.ndarray = field(factory=lambda: np.zeros(0, dtype=np.int64), init=False)
    _cuts: list[tuple[int, int]] = field(factory=list, init=False)
    _age: int = field(default=0, init=False)

    def plan(self, rows: Rows, count: int, sharers: Mapping[int, Sequence[int]], layer_bytes: float) -> Plan | None:
        """The next step of the first `count` rows; None when none can compute.

        `sharers` are the rows that draw from the logits of the row that leads them, once its
        prompt is complete. `layer_bytes`: of keys and values, a token and layer.
        """
        state = rows.state
        pending = (state["total"][:count] - state["cached"][:count]) * ~state["follows"][:count]
        decoding = (pending == 1).nonzero()[0]
        at = state["total"][decoding] - 1
        runs = self._runs(decoding, at + 1, _CALL_BYTES / max(layer_bytes, 1.0))
        prefilling = (pending > 1).nonzero()[0]
        if prefilling.size == 0:
            everything = np.arange(len(decoding))
            plan = Plan(rows.tokens[decoding, at], at, decoding, runs, (), everything, decoding, everything)
            return plan if decoding.size else None
        order = prefilling[np.argsort(state["order"][prefilling])]
        return self._with_chunks(rows, decoding, at, runs, order, sharers)

    def _with_chunks(
        self,
        rows: Rows,
        decoding: np.ndarray,
        at: np.ndarray,
        runs: Sequence[Run],
        prefilling: np.ndarray,
        sharers: Mapping[int, Sequence[int]],
    ) -> Plan:
        chunks = list(_chunks(rows, prefilling, len(decoding), self.prefill_tokens))
        spans = [np.arange(c.start, c.start + c.size) for c in chunks]
        owners = np.repeat([c.row for c in chunks], [c.size for c in chunks])
        positions = np.concatenate([at, *spans])
        owners = np.concatenate([decoding, owners])
        total = rows.state["total"]
        done = [c for c in chunks if c.start + c.size == total[c.row]]
        keep = np.concatenate([np.arange(len(decoding)), [c.token + c.size - 1 for c in done]]).astype(np.int64)
        sampled, draw = list(decoding), list(range(len(decoding)))
        for place, chunk in enumerate(done, start=len(decoding)):
            drawers = _drawers(rows, chunk.row, sharers.get(chunk.row, ()))
            sampled += drawers
            draw += [place] * len(drawers)
        return Plan(
            rows.tokens[owners, positions],
            positions,
            owners,
            runs,
            chunks,
            keep,
            np.array(sampled, dtype=np.int64),
            np.array(draw, dtype=np.int64),
        )

    def _runs(self, decoding: np.ndarray, lengths: np.ndarray, call_tokens: float) -> list[Run]:
        self._age += 1
        if self._age > _RECUT or not np.array_equal(decoding, self._decoding):
            self._decoding, self._age = decoding, 0
            self._cuts = list(cut(decoding, lengths, call_tokens))
        return [
            Run(a, int(decoding[a]), b - a, int(lengths[a:b].max()), int(lengths[a:b].min())) for a, b in self._cuts
        ]


def _chunks(rows: Rows, prefilling: Iterable[int], token: int, budget: int) -> Iterator[Chunk]:
    """As many tokens of the rows as the budget allows, in their order; the last may be cut."""
    for row in prefilling:
        start = int(rows.state["cached"][row])
        size = min(int(rows.state["total"][row]) - start, budget)
        if size == 0:
            return
        yield Chunk(token, int(row), start, size)
        token, budget = token + size, budget - size


def _drawers(rows: Rows, row: int, sharers: Sequence[int]) -> list[int]:
    """The row, and those of its sharers that draw from its logits: both have no answer yet."""
    fresh = rows.state["total"] == rows.state["prompt"]
    return [row, *(r for r in sharers if fresh[row] and fresh[r])]


def side_by_side(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Fresh chunks of equal size that follow each other, joined so that one attention call does them."""
    joined: list[Chunk] = []
    for chunk in chunks:
        last = joined[-1] if joined else None
        if last and last.start == chunk.start == 0 and last.size == chunk.size:
            joined[-1] = Chunk(last.token, last.row, 0, last.size, last.copies + 1)
        else:
            joined.append(chunk)
    return joined


def cut(rows: np.ndarray, lengths: np.ndarray, call_tokens: float) -> Iterator[tuple[int, int]]:
    """Cut sequences in `rows` (ascending) into runs of neighbours that attention does in one call each.

    A run costs `call_tokens` and its longest length for each of its sequences; the cuts of least
    cost are found by dynamic programming over where the last run starts.
    """
    gaps = np.flatnonzero(rows[1:] - rows[:-1] > 1) + 1
    for first, last in pairwise([0, *gaps.tolist(), len(rows)]):
        if first < last:
            yield from ((first + a, first + b) for a, b in _cheapest(lengths[first:last], call_tokens))


def _cheapest(lengths: np.ndarray, call_tokens: float) -> list[tuple[int, int]]:
    n = len(lengths)
    if n * lengths.max() - lengths.sum() <= call_tokens:
        return [(0, n)]
    cost = np.zeros(n + 1)
    start = np.zeros(n + 1, dtype=np.int64)
    for end in range(1, n + 1):
        longest = np.maximum.accumulate(lengths[end - 1 :: -1])
        options = cost[end - 1 :: -1] + call_tokens + longest * np.arange(1, end + 1)
        best = int(options.argmin())
        cost[end], start[end] = options[best], end - 1 - best
    runs = []
    while n > 0:
        runs.append((int(start[n]), n))
        n = int(start[n])
    return runs[::-1]
