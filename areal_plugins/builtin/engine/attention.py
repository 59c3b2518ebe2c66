"""Attention of a packed step over the rows of the cache, as a transformers attention function.

A step packs every running sequence into one row of tokens: first one token of each decoding
sequence, then chunks of prompts. transformers calls `attend` in each layer with the queries, keys
and values of all of them; each part attends to its own row of the cache only. Query heads that
share a key head are folded into the query axis (decoding) or a broadcast axis (prompts), so that
keys and values are never repeated in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  (torch's own spelling)
from attrs import define, field, frozen

from areal_plugins import InputError
from areal_plugins.builtin.engine.kv_cache import KVCache

NAME = "areal_rows"
"""What the attention function is registered as."""


@frozen
class Run:
    """Decoding sequences in neighbouring rows: `count` tokens from `token` on, in rows from `row` on.

    `longest` and `shortest` of them in tokens so far, the one being decoded included.
    """

    token: int
    row: int
    count: int
    longest: int
    shortest: int


@frozen
class Chunk:
    """`size` tokens of one sequence, from its position `start`, at `token` of the step.

    `copies` fresh sequences (start 0) of equal size may lie one after another; only then `row` is
    not read.
    """

    token: int
    row: int
    start: int
    size: int
    copies: int = 1


@define(eq=False)
class PackedStep:
    """Where the tokens of one forward pass belong. `rows`, `positions` are [T] int64 on the device.

    Layers note in `windows` how far back they look.
    """

    cache: KVCache
    rows: torch.Tensor
    positions: torch.Tensor
    runs: Sequence[Run]
    chunks: Sequence[Chunk]
    windows: dict[int, int | None] = field(factory=dict)
    _slots: dict[int, torch.Tensor] = field(factory=dict)
    _masks: dict[tuple[int, int | None], torch.Tensor | None] = field(factory=dict)

    def slots(self, heads: int) -> torch.Tensor:
        if heads not in self._slots:
            self._slots[heads] = self.cache.slots(self.rows, self.positions, heads)
        return self._slots[heads]

    def run_mask(self, run: Run, window: int | None) -> torch.Tensor | None:
        """[count, 1, 1, longest] additive; None when every sequence sees all that is stored."""
        key = (run.token, window)
        if key not in self._masks:
            self._masks[key] = self._run_mask(run, window)
        return self._masks[key]

    def _run_mask(self, run: Run, window: int | None) -> torch.Tensor | None:
        longest = run.longest
        if run.shortest == longest and (window is None or longest <= window):
            return None
        query = self.positions[run.token : run.token + run.count, None]
        return self._additive(_visible(query, torch.arange(longest, device=query.device), window))[:, None, None]

    def chunk_mask(self, chunk: Chunk, window: int | None, *, explicit: bool) -> torch.Tensor | None:
        """[size, start + size] additive; None when plain causality says it all, unless asked for."""
        end = chunk.start + chunk.size
        if chunk.start == 0 and (window is None or end <= window) and not explicit:
            return None
        key = (chunk.token, window)
        if key not in self._masks:
            keys = torch.arange(end, device=self.positions.device)
            self._masks[key] = self._additive(_visible(keys[chunk.start :, None], keys, window))
        return self._masks[key]

    def _additive(self, visible: torch.Tensor) -> torch.Tensor:
        mask = torch.zeros(visible.shape, dtype=self.cache.dtype, device=visible.device)
        return mask.masked_fill_(~visible, -torch.inf)


def _visible(query: torch.Tensor, keys: torch.Tensor, window: int | None) -> torch.Tensor:
    visible = keys <= query
    return visible if window is None else visible & (keys > query - window)


@frozen
class Scoring:
    """What a layer asks of attention beside the plain softmax of scaled products.

    `softcap` c bounds scores to c * tanh(score / c) (Gemma 2, arXiv:2408.00118); `sinks` [Hq] add
    one key of that score and value 0 (gpt-oss).
    """

    scale: float | None = None
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None

    @property
    def plain(self) -> bool:
        return self.softcap is None and self.sinks is None


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    areal_step: PackedStep | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function (`transformers.AttentionInterface`) of one layer.

    Shapes: query [1, Hq, T, D], key and value [1, Hk, T, D]; the result is [1, T, Hq, D].

    Raises:
        InputError: the layer wants an attention that cannot be expressed here.

    """
    _refuse(module, areal_step is None, attention_mask is not None, kwargs.get("position_bias") is not None)
    assert areal_step is not None
    layer = int(module.layer_idx)  # type: ignore[arg-type]  # an int on every attention module
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    scoring = Scoring(scaling, sliding_window, softcap, s_aux)
    return attend_packed(areal_step, layer, q, k, v, scoring)[None], None


def attend_packed(
    step: PackedStep, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scoring: Scoring
) -> torch.Tensor:
    """Store the step's keys and values of `layer`, and attend: q [T, Hq, D], k and v [T, Hk, D] to [T, Hq, D]."""
    step.windows[layer] = scoring.window
    keys, values = step.cache.write(layer, k, v, step.slots(k.shape[1]))
    parts = [_decode(step, run, q, keys, values, scoring) for run in step.runs]
    parts += [_prefill(step, chunk, q, _chunk_keys(chunk, k, v, keys, values), scoring) for chunk in step.chunks]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _refuse(module: torch.nn.Module, stepless: bool, masked: bool, biased: bool) -> None:
    name = type(module).__name__
    if stepless:
        raise InputError(name, "the model does not hand its attention the step's layout", "use another engine")
    if masked or biased:
        raise InputError(name, "the model asks for an attention mask or bias of its own", "use another engine")


def _decode(
    step: PackedStep, run: Run, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scoring: Scoring
) -> torch.Tensor:
    """One token of each sequence of the run: [count, Hq, Dv]."""
    n, heads = run.count, keys.shape[1]
    q = queries.narrow(0, run.token, n).reshape(n, heads, -1, queries.shape[-1])
    k, v = (table.narrow(0, run.row, n).narrow(2, 0, run.longest) for table in (keys, values))
    mask = step.run_mask(run, scoring.window)
    if scoring.plain:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scoring.scale)
    else:
        sinks = None if scoring.sinks is None else scoring.sinks.view(heads, -1, 1)
        out = _weighted(q, k, v, mask, scoring, sinks)
    return out.reshape(n, -1, out.shape[-1])


def _chunk_keys(
    chunk: Chunk, k: torch.Tensor, v: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
) -> list[torch.Tensor]:
    """Keys and values a chunk attends to, as [copies, Hk, L, D]: the step's own for fresh ones."""
    if chunk.start == 0:
        span = slice(chunk.token, chunk.token + chunk.copies * chunk.size)
        fresh = (x[span].reshape(chunk.copies, chunk.size, *x.shape[1:]) for x in (k, v))
        return [x.transpose(1, 2) for x in fresh]
    return [table[chunk.row : chunk.row + 1, :, : chunk.start + chunk.size] for table in (keys, values)]


def _prefill(
    step: PackedStep, chunk: Chunk, queries: torch.Tensor, stored: list[torch.Tensor], scoring: Scoring
) -> torch.Tensor:
    """All tokens of the chunk: [copies * size, Hq, Dv]."""
    copies, heads, length, _ = stored[0].shape
    span = queries[chunk.token : chunk.token + copies * chunk.size]
    q = span.reshape(copies, chunk.size, heads, -1, span.shape[-1]).permute(0, 2, 3, 1, 4).flatten(0, 1)
    k, v = (x.reshape(copies * heads, 1, length, -1).expand(-1, q.shape[1], -1, -1) for x in stored)
    mask = step.chunk_mask(chunk, scoring.window, explicit=not scoring.plain)
    if scoring.plain:
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scoring.scale)
    else:
        sinks = None if scoring.sinks is None else scoring.sinks.view(heads, -1, 1, 1).repeat(copies, 1, 1, 1)
        out = _weighted(q, k, v, mask, scoring, sinks)
    out = out.view(copies, heads, *out.shape[1:]).permute(0, 3, 1, 2, 4)
    return out.reshape(copies * chunk.size, -1, out.shape[-1])


def _weighted(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    scoring: Scoring,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention written out, for what the fused kernels lack. `sinks` broadcast to the scores' [..., q, 1]."""
    scale = q.shape[-1] ** -0.5 if scoring.scale is None else scoring.scale
    precise = torch.promote_types(q.dtype, torch.float32)
    scores = (q @ k.transpose(-1, -2)).to(precise) * scale
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    if mask is not None:
        scores = scores + mask
    if sinks is not None:
        scores = torch.cat([scores, sinks.to(precise).expand(*scores.shape[:-1], 1)], dim=-1)
    return torch.softmax(scores, dim=-1)[..., : k.shape[-2]].to(v.dtype) @ v
