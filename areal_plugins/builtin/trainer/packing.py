"""Micro-batches without padding: whole trajectories end to end, what a group has in common only once.

A group of members that begin alike is laid out as [common][rest 1][rest 2]...; `grid.py` lets each
rest attend to the common part and to itself. A trajectory's last token predicts nothing and is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from attrs import frozen

from areal_plugins.builtin.trainer.units import Units

_WORTH_APART = 256
"""Silent tokens from which a micro-batch of their own saves more than it costs, even in the smallest models."""


@frozen(eq=False)
class Piece:
    """Members of one group that stay together, `size` tokens; `common` is how many all of the group begin with.

    `silent`: their rewards are equal, so that most objectives have no gradient for them.
    """

    members: np.ndarray
    common: int
    size: int
    silent: bool


@frozen(eq=False)
class Layout:
    """G groups of up to n members: the lengths of the common parts [G] and of the rests [G, n] (0: no member)."""

    common: np.ndarray
    rest: np.ndarray

    @property
    def segments(self) -> np.ndarray:
        """[G, 1 + n] lengths, in the order in which they are packed."""
        lengths: np.ndarray = np.concatenate([self.common[:, None], self.rest], axis=1)
        return lengths

    @property
    def offsets(self) -> np.ndarray:
        """[G, 1 + n] where each segment begins."""
        lengths = self.segments.ravel()
        begins: np.ndarray = (np.cumsum(lengths) - lengths).reshape(len(self.common), -1)
        return begins


@frozen(eq=False)
class Packed:
    """One micro-batch of X tokens: `tokens` and `positions` [X], and its trained units [t].

    A unit's log-probability is read at `predict` for the token `targets`; `units` are indices into
    the batch's T units, `trajectory` counts the micro-batch's trajectories.
    """

    layout: Layout
    tokens: np.ndarray
    positions: np.ndarray
    predict: np.ndarray
    targets: np.ndarray
    units: np.ndarray
    trajectory: np.ndarray


def split(units: Units, chosen: np.ndarray, budget: int) -> list[list[Piece]]:
    """The trajectories `chosen` (bool [S]) as micro-batches of at most `budget` tokens each.

    Groups stay whole where they fit. A trajectory longer than the budget is a micro-batch of its
    own. Longest first, so that those that share an attention grid are of like lengths. Silent pieces
    come last and, where they are worth it, apart: a micro-batch without gradient has no backward pass.
    """
    useful = chosen & (units.needed > 0)
    pieces = [piece for members in units.members for piece in _pieces(units, members[useful[members]], budget)]
    pieces.sort(key=lambda piece: (piece.silent, -int(units.needed[piece.members].max()), int(piece.members[0])))
    silent = [piece for piece in pieces if piece.silent]
    if sum(piece.size for piece in silent) < _WORTH_APART:
        return _fill(pieces, budget)
    return _fill(pieces[: -len(silent)], budget) + _fill(silent, budget)


def pack(units: Units, pieces: Sequence[Piece]) -> Packed:
    """Lay `pieces` out as one micro-batch."""
    members = _grid([piece.members for piece in pieces])
    present = members >= 0
    common = np.array([piece.common for piece in pieces])
    rest = np.where(present, units.needed[members] - common[:, None], 0)
    layout = Layout(common, rest)

    starts = units.starts[members]
    sources = np.concatenate([starts[:, :1], np.where(present, starts + common[:, None], 0)], axis=1)
    begins = np.concatenate([np.zeros_like(common)[:, None], np.broadcast_to(common[:, None], rest.shape)], axis=1)
    lengths = layout.segments.ravel()
    return Packed(
        layout=layout,
        tokens=units.tokens[ranges(sources.ravel(), lengths)],
        positions=ranges(begins.ravel(), lengths),
        **_predictions(units, layout, members, present),
    )


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`arange(starts[i], starts[i] + lengths[i])` for each i, end to end."""
    ends = np.cumsum(lengths)
    whole: np.ndarray = np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return whole


def _predictions(units: Units, layout: Layout, members: np.ndarray, present: np.ndarray) -> dict[str, np.ndarray]:
    """Where each trained unit is predicted: one token before it, which may stand in the common part."""
    place = np.full(len(units.starts), -1)
    place[members[present]] = np.flatnonzero(present)
    at = np.flatnonzero(place[units.owner] >= 0)
    cell = place[units.owner[at]]
    group, before = cell // members.shape[1], units.position[at] - 1
    common, offsets = layout.common[group], layout.offsets
    in_rest = offsets[:, 1:].ravel()[cell] + before - common
    predict = np.where(before < common, offsets[group, 0] + before, in_rest)
    _, trajectory = np.unique(units.owner[at], return_inverse=True)
    return {
        "predict": predict,
        "targets": units.targets[at],
        "units": units.trained[at],
        "trajectory": trajectory,
    }


def _pieces(units: Units, members: np.ndarray, budget: int) -> Iterable[Piece]:
    """The group in as few parts as fit the budget, each with a copy of the common tokens."""
    if not members.size:
        return
    common = _common(units, members)
    rewards = units.arrays.rewards[members]
    silent = len(members) > 1 and bool((rewards == rewards[0]).all())
    rests = units.needed[members] - common
    begin, filled = 0, common
    for i, rest in enumerate(rests):
        if i > begin and filled + rest > budget:
            yield Piece(members[begin:i], common, int(filled), silent)
            begin, filled = i, common
        filled += rest
    yield Piece(members[begin:], common, int(filled), silent)


def _common(units: Units, members: np.ndarray) -> int:
    """How many tokens all of `members` begin with; 0 for a single one, which shares nothing."""
    if len(members) == 1:
        return 0
    shortest = int(units.needed[members].min())
    heads = units.tokens[units.starts[members][:, None] + np.arange(shortest)]
    differs = (heads != heads[0]).any(axis=0)
    return int(differs.argmax()) if differs.any() else shortest


def _fill(pieces: Sequence[Piece], budget: int) -> list[list[Piece]]:
    batches: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        if not batches or piece.size > room:
            batches.append([])
            room = budget
        batches[-1].append(piece)
        room -= piece.size
    return batches


def _grid(members: Sequence[np.ndarray]) -> np.ndarray:
    """[G, n], -1 where a group has no more members."""
    grid = np.full((len(members), max(map(len, members))), -1)
    for row, ids in zip(grid, members, strict=True):
        row[: len(ids)] = ids
    return grid
