"""Columns of all running sequences: what a step reads and writes of them, vectorized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_COLUMNS: dict[str, type[np.generic]] = {
    "total": np.int64,  # tokens known: prompt and answer
    "cached": np.int64,  # of them in the key-value cache
    "prompt": np.int64,  # tokens of the prompt
    "limit": np.int64,  # most tokens in all
    "floor": np.int64,  # fewest tokens in all before a stop counts
    "follows": np.bool_,  # waits for another row to compute its prompt
    "watched": np.bool_,  # has stop strings
    "temperature": np.float64,
    "top_p": np.float64,
    "top_k": np.int64,
    "key": np.uint64,  # of its random stream
    "order": np.int64,  # of admission
}

NO_TOKEN = -1


class Rows:
    """A table of `capacity` rows; `state` columns by name, and per row its tokens and their columns.

    `tokens` int32, `logprobs` float32 and `versions` int64 are [capacity, length]; `stops` int64
    [capacity, any] holds the ids that end an answer, padded with `NO_TOKEN`.
    """

    def __init__(self, capacity: int) -> None:
        self.state = {name: np.zeros(capacity, dtype=kind) for name, kind in _COLUMNS.items()}
        self.tokens = np.zeros((capacity, 0), dtype=np.int32)
        self.logprobs = np.zeros((capacity, 0), dtype=np.float32)
        self.versions = np.zeros((capacity, 0), dtype=np.int64)
        self.stops = np.full((capacity, 1), NO_TOKEN, dtype=np.int64)

    def write(
        self, rows: Sequence[int], columns: Mapping[str, Any], prompt: np.ndarray, stops: tuple[int, ...]
    ) -> None:
        """Begin sequences of one prompt in `rows`; a column is one value, or one for each row."""
        for name, column in self.state.items():
            column[rows] = columns[name]
        self.tokens[rows, : len(prompt)] = prompt
        missing = len(stops) - self.stops.shape[1]
        if missing > 0:
            self.stops = np.pad(self.stops, ((0, 0), (0, missing)), constant_values=NO_TOKEN)
        self.stops[rows] = NO_TOKEN
        self.stops[rows, : len(stops)] = stops

    def go_on(self, row: int, tokens: np.ndarray, logprobs: np.ndarray, versions: np.ndarray) -> None:
        """Take up an answer that was begun elsewhere; nothing of it is cached."""
        start = int(self.state["total"][row])
        span = slice(start, start + len(tokens))
        self.tokens[row, span], self.logprobs[row, span], self.versions[row, span] = tokens, logprobs, versions
        self.state["total"][row] = span.stop

    def answer(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Copies of the answer's tokens, log-probabilities and versions."""
        span = slice(int(self.state["prompt"][row]), int(self.state["total"][row]))
        return self.tokens[row, span].copy(), self.logprobs[row, span].copy(), self.versions[row, span].copy()

    def reserve(self, length: int) -> None:
        """Room for sequences of `length` tokens."""
        missing = ((0, 0), (0, max(0, length - self.tokens.shape[1])))
        if missing[1][1]:
            self.tokens = np.pad(self.tokens, missing)
            self.logprobs = np.pad(self.logprobs, missing)
            self.versions = np.pad(self.versions, missing)

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for table in (*self.state.values(), self.tokens, self.logprobs, self.versions, self.stops):
            table[targets] = table[sources]

    def append(self, rows: np.ndarray, tokens: np.ndarray, logprobs: np.ndarray, version: int) -> None:
        """One more token for each of `rows`; everything before it counts as cached."""
        state = self.state
        at = state["total"][rows]
        self.tokens[rows, at] = tokens
        self.logprobs[rows, at] = logprobs
        self.versions[rows, at] = version
        state["cached"][rows] = at
        state["total"][rows] = at + 1
