"""From packed tokens to attention rows and back, keys of a common part shared by the rows of its group.

Row r is one member: its queries are its own tokens and an equal share of the common part's; its keys
are the common part, then its own tokens. All queries of a group are thus computed once, no member
attends over another's tokens, and one attention call a layer does it all. Shapes: X packed tokens,
R = G * n rows, Q queries and K keys a row, H key heads, each shared by F query heads of size D.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from areal_plugins.builtin.trainer.packing import Layout

_LANES = 8
"""Numbers in a processor's vector: products and softmax of small rows of another length take twice as long."""


class Grid:
    """The attention rows of one layout; its tensors are made once for all layers."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        self._device = device
        self.groups, self.members = layout.rest.shape
        self.rows = self.groups * self.members
        self.common = int(layout.common.max())
        self._query, self._query_position = _queries(layout)
        self._key, self._key_position = _keys(layout, self.common)
        self.queries, self.keys = self._query.shape[1], self._key.shape[1]
        self._indices: dict[int, Indices] = {}
        self._masks: dict[Any, Tensor] = {}

    def indices(self, heads: int) -> Indices:
        """Row indices for `heads` key heads."""
        if heads not in self._indices:
            self._indices[heads] = self._make_indices(heads)
        return self._indices[heads]

    def mask(self, fold: int, window: int | None, dtype: torch.dtype) -> Tensor:
        """What to add to scores, [R, 1, Q * fold, K]: 0 where a query may look, else -inf.

        With `window` a query sees that many tokens, its own included.
        """
        key = (fold, window, dtype)
        if key not in self._masks:
            seen = torch.from_numpy(self._seen(window)).to(self._device)
            added = torch.zeros(seen.shape, dtype=dtype, device=self._device).masked_fill_(~seen, float("-inf"))
            self._masks[key] = added.repeat_interleave(fold, dim=1)[:, None]
        return self._masks[key]

    def _seen(self, window: int | None) -> np.ndarray:
        query, key = self._query_position[:, :, None], self._key_position[:, None, :]
        seen: np.ndarray = (key >= 0) & ((key <= query) | (query < 0))
        if window is not None:
            seen &= (key > query - window) | (query < 0)
        seen[~seen.any(axis=-1)] = True  # rows of padding look anywhere: their result is dropped, but must be finite
        return seen

    def _make_indices(self, heads: int) -> Indices:
        shape = (self.groups, self.members, heads)
        query, key = _by_head(self._query, heads), _by_head(self._key, heads)
        common = _by_head(self._key.reshape(*shape[:2], -1)[:, 0, : self.common], heads)
        return Indices(
            query=self._tensor(np.maximum(query, 0)),
            query_place=self._tensor(_places(query)),
            query_padding=self._tensor(np.flatnonzero(query.ravel() < 0)),
            key=self._tensor(np.maximum(key, 0)),
            key_place=self._tensor(_places(key)),
            common_token=self._tensor(common[common >= 0]),
            common_place=self._tensor(np.flatnonzero(common.ravel() >= 0)),
            shape=(*shape, self.keys),
            common=self.common,
        )

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array).ravel()).to(self._device)


@frozen(eq=False)
class Indices:
    """Flat indices of (token, head) pairs: of rows into packed tokens (`query`, `key`), and back.

    `query_place` and `key_place` say where in the rows each packed pair stands (a common key: in its
    first row); `query_padding` which places hold none. `common_token` are the packed pairs of common
    keys, `common_place` where they stand in [G, H, common].
    """

    query: Tensor
    query_place: Tensor
    query_padding: Tensor
    key: Tensor
    key_place: Tensor
    common_token: Tensor
    common_place: Tensor
    shape: tuple[int, int, int, int]
    common: int


def _queries(layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """[R, Q] packed token of each query and its position, -1 for padding."""
    members = layout.rest.shape[1]
    share = -(-layout.common // members)[:, None]
    begin = share * np.arange(members)
    taken = np.clip(layout.common[:, None] - begin, 0, share)
    column = np.arange(int((taken + layout.rest).max()))
    return _select(
        column,
        (taken, layout.offsets[:, :1] + begin, begin),
        (layout.rest, layout.offsets[:, 1:], np.broadcast_to(layout.common[:, None], taken.shape)),
    )


def _keys(layout: Layout, common: int) -> tuple[np.ndarray, np.ndarray]:
    """[R, K] packed token of each key and its position, -1 for padding; own tokens begin at column `common`.

    K is a multiple of `_LANES`.
    """
    shape = layout.rest.shape
    shared = np.broadcast_to(layout.common[:, None], shape)
    first = np.broadcast_to(layout.offsets[:, :1], shape)
    head = _select(np.arange(common), (shared, first, np.zeros(shape, dtype=np.int64)))
    longest = common + int(layout.rest.max())
    columns = longest + -longest % _LANES - common
    tail = _select(np.arange(columns), (layout.rest, layout.offsets[:, 1:], shared))
    tokens, positions = (np.concatenate(pair, axis=1) for pair in zip(head, tail, strict=True))
    return tokens, positions


def _select(column: np.ndarray, *runs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows [R, len(column)] made of runs, each `(length, first token, first position)` [G, n], one after another."""
    tokens = np.full((runs[0][0].size, len(column)), -1)
    positions = tokens.copy()
    passed = np.zeros((runs[0][0].size, 1), dtype=np.int64)
    for run in runs:
        length, token, position = (part.reshape(-1, 1) for part in run)
        inside = (column >= passed) & (column < passed + length)
        tokens = np.where(inside, token + column - passed, tokens)
        positions = np.where(inside, position + column - passed, positions)
        passed = passed + length
    return tokens, positions


def _by_head(tokens: np.ndarray, heads: int) -> np.ndarray:
    """[R, L] tokens to [R, heads, L] (token, head) pairs; padding stays negative."""
    return np.where(tokens[:, None] < 0, -1, tokens[:, None] * heads + np.arange(heads)[:, None])


def _places(pairs: np.ndarray) -> np.ndarray:
    """For each pair, in order, its first place in `pairs`, paddings passed over."""
    flat = pairs.ravel()
    real = np.flatnonzero(flat >= 0)
    places = np.empty(int(flat.max()) + 1, dtype=np.int64)
    places[flat[real][::-1]] = real[::-1]
    return places
