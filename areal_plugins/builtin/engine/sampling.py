"""Drawing tokens: temperature, top-k and top-p, with the log-probability of what was drawn.

All functions are batched over S sequences and draw by inverting the cumulative distribution at one
uniform number a sequence, so that what a sequence draws depends on its own logits and number only.
"""

from __future__ import annotations

import numpy as np
import torch
from attrs import frozen

_BLOCK = 256
_CANDIDATES = 1024
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@frozen(eq=False)
class Draws:
    """How S sequences sample: all [S]. `temperature` 0 is greedy, `top_k` 0 and `top_p` 1 are off.

    `uniform` is one number in [0, 1) each.
    """

    temperature: np.ndarray
    top_p: np.ndarray
    top_k: np.ndarray
    uniform: np.ndarray

    def of(self, chosen: np.ndarray) -> Draws:
        return Draws(self.temperature[chosen], self.top_p[chosen], self.top_k[chosen], self.uniform[chosen])


def stream_keys(seed: int, count: int) -> np.ndarray:
    """The keys of random streams 0..count-1 of `seed`, uint64; different pairs give unrelated streams."""
    seeds = np.full(count, seed & 0xFFFFFFFFFFFFFFFF, dtype=np.uint64)
    return _mix(_mix(seeds) + np.arange(count, dtype=np.uint64))


def uniforms(keys: np.ndarray, counters: np.ndarray) -> np.ndarray:
    """The `counters`-th number of each stream, float64: a multiple of 2^-50 in [0, 1).

    A counter-based generator: SplitMix64 (Steele, Lea, Flood 2014) evaluated at any place. 50 bits,
    so that a number times a sum, rounded, stays below the sum.
    """
    bits = _mix(keys + counters.astype(np.uint64))
    return (bits >> np.uint64(14)).astype(np.float64) * 2.0**-50


def _mix(state: np.ndarray) -> np.ndarray:
    """SplitMix64's next output after `state`: a permutation of 64-bit numbers."""
    z = (state + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX[0]
    z = (z ^ (z >> np.uint64(27))) * _MIX[1]
    return z ^ (z >> np.uint64(31))


Drawn = tuple[torch.Tensor, torch.Tensor]


def sample(logits: torch.Tensor, draws: Draws) -> Drawn:
    """A token a sequence [S] int64, and its log-probability [S] float32, from logits [S, V].

    The log-probability is that of the distribution the token was drawn from: after temperature,
    top-k and top-p in this order; at temperature 1 for greedy sequences.
    """
    greedy = draws.temperature == 0
    limited = ~greedy & ((draws.top_k > 0) | (draws.top_p < 1))
    kinds = ((~(greedy | limited), _free), (greedy, _greedy), (limited, _limited))
    for chosen, draw in kinds:
        if chosen.all():
            return draw(logits.float(), draws)
    tokens = torch.empty(len(greedy), dtype=torch.int64, device=logits.device)
    logprobs = torch.empty(len(greedy), dtype=torch.float32, device=logits.device)
    for chosen, draw in kinds:
        if chosen.any():
            index = torch.from_numpy(np.flatnonzero(chosen)).to(logits.device)
            tokens[index], logprobs[index] = draw(logits[index].float(), draws.of(chosen))
    return tokens, logprobs


def _greedy(logits: torch.Tensor, _: Draws) -> Drawn:
    tokens = logits.max(dim=-1).indices
    return tokens, torch.log_softmax(logits, dim=-1).gather(1, tokens[:, None])[:, 0]


def _free(logits: torch.Tensor, draws: Draws) -> Drawn:
    """The whole distribution."""
    p = torch.softmax(_scaled(logits, draws), dim=-1)
    uniform = _column(draws.uniform, p)
    tokens = _in_blocks(p, uniform) if p.shape[1] > 2 * _BLOCK else _invert(p, uniform)[0]
    return tokens[:, 0], p.gather(1, tokens)[:, 0].log()


def _in_blocks(p: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """As `_invert`, by finding the block of the vocabulary first, then the token in it."""
    vocabulary, blocks = p.shape[1], p.shape[1] // _BLOCK
    inside = p[:, : blocks * _BLOCK].view(-1, blocks, _BLOCK).sum(-1)
    mass = torch.cat([inside, p[:, blocks * _BLOCK :].sum(-1, keepdim=True)], dim=1)
    block, running = _invert(mass, uniform)
    chosen = mass.gather(1, block)
    before = running.gather(1, block) - chosen
    rest = ((uniform * running[:, -1:] - before) / chosen).clamp_(0, 1 - 2.0**-50)
    index = block * _BLOCK + torch.arange(_BLOCK, device=p.device)
    weights = p.gather(1, index.clamp_max(vocabulary - 1)).masked_fill_(index >= vocabulary, 0)
    return (block * _BLOCK + _invert(weights, rest)[0]).clamp_max_(vocabulary - 1)


def _limited(logits: torch.Tensor, draws: Draws) -> Drawn:
    """Top-k, then top-p: among the best candidates, as few as hold all that may be drawn."""
    scaled = _scaled(logits, draws)
    top_k = torch.from_numpy(np.where(draws.top_k > 0, draws.top_k, scaled.shape[1])).to(scaled.device)[:, None]
    top_p = _column(draws.top_p, scaled)
    whole = torch.logsumexp(scaled, dim=-1, keepdim=True).double()
    for size in (min(_CANDIDATES, scaled.shape[1]), scaled.shape[1]):
        values, tokens = scaled.topk(size, dim=-1)
        p = (values.double() - whole).exp()
        if ((top_k <= size) | ((top_k >= scaled.shape[1]) & (p.sum(-1, keepdim=True) >= top_p))).all():
            break
    p = p.masked_fill_(torch.arange(size, device=p.device) >= top_k, 0)
    mass = torch.where(top_k < scaled.shape[1], p.sum(-1, keepdim=True), 1.0)
    before = p.cumsum(-1) - p
    p = p.masked_fill_(before >= top_p * mass, 0)
    kept = p.sum(-1, keepdim=True)
    chosen, _ = _invert(p, _column(draws.uniform, p))
    return tokens.gather(1, chosen)[:, 0], (p.gather(1, chosen) / kept)[:, 0].log().float()


def _scaled(logits: torch.Tensor, draws: Draws) -> torch.Tensor:
    if (draws.temperature == 1).all():
        return logits
    return logits / _column(draws.temperature, logits).float()


def _column(values: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(values).to(like.device)[:, None]


def _invert(weights: torch.Tensor, uniform: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Indices [S, 1] drawn in proportion to weights [S, N] by numbers [S, 1] in [0, 1), and the running sums.

    The first index where the running sum passes its share of the whole; never one of weight 0, for
    the sum rises only where weights do. Weights that are no numbers give the last index.
    """
    running = weights.cumsum(-1, dtype=torch.float64)
    index = torch.searchsorted(running, uniform * running[:, -1:], right=True)
    return index.clamp_max_(weights.shape[1] - 1), running
