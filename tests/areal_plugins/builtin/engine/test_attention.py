from types import SimpleNamespace

import numpy as np
import pytest
import torch

from areal_plugins import InputError
from areal_plugins.builtin.engine.attention import Chunk, PackedStep, Run, attend
from areal_plugins.builtin.engine.kv_cache import KVCache

HQ, HK, D = 6, 2, 8
SCORINGS = {
    "plain": {},
    "scaled": {"scaling": 0.2},
    "window": {"sliding_window": 3},
    "softcap": {"softcap": 2.0},
    "sinks": {"s_aux": torch.linspace(-1, 2, HQ, dtype=torch.float64)},
    "all": {"sliding_window": 4, "softcap": 3.0, "s_aux": torch.linspace(-2, 1, HQ, dtype=torch.float64)},
}


def reference(q, k, v, scaling=D**-0.5, sliding_window=None, softcap=None, s_aux=None):
    """Causal attention of the last tokens of one sequence, number by number: q [T, Hq, D], k, v [L, Hk, D]."""
    out = np.zeros(q.shape)
    for t in range(len(q)):
        at = len(k) - len(q) + t
        seen = range(0 if sliding_window is None else max(0, at - sliding_window + 1), at + 1)
        for h in range(q.shape[1]):
            scores = np.array([scaling * q[t, h] @ k[s, h * k.shape[1] // q.shape[1]] for s in seen])
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            weights = np.exp(scores)
            total = weights.sum() + (0 if s_aux is None else np.exp(float(s_aux[h])))
            out[t, h] = sum(w * v[s, h * v.shape[1] // q.shape[1]] for w, s in zip(weights, seen, strict=True)) / total
    return out


class World:
    """Random sequences in a cache, and steps over them."""

    def __init__(self, lengths: list[int], rows: list[int]) -> None:
        torch.manual_seed(0)
        self.rows = rows
        self.q, self.k, self.v = (
            [torch.randn(n, heads, D, dtype=torch.float64) for n in lengths] for heads in (HQ, HK, HK)
        )
        self.cache = KVCache(torch.float64, torch.device("cpu"))
        self.cache.resize(max(rows) + 1, max(lengths) + 2)

    def step(self, spans, runs=(), chunks=(), **scoring) -> np.ndarray:
        """Attention of tokens `start..end` of each sequence, packed in this order: [T, Hq, D]."""
        packed = [torch.cat([x[i][a:b] for i, (a, b) in spans.items()]) for x in (self.q, self.k, self.v)]
        rows = torch.cat([torch.full((b - a,), self.rows[i]) for i, (a, b) in spans.items()])
        positions = torch.cat([torch.arange(a, b) for a, b in spans.values()])
        step = PackedStep(self.cache, rows, positions, runs, chunks)
        layer = SimpleNamespace(layer_idx=0)
        query, key, value = (x.transpose(0, 1)[None] for x in packed)
        out, _ = attend(layer, query, key, value, None, areal_step=step, **scoring)
        return out[0].numpy()

    def expected(self, spans, **scoring) -> np.ndarray:
        return np.concatenate(
            [
                reference(self.q[i][a:b].numpy(), self.k[i][:b].numpy(), self.v[i][:b].numpy(), **scoring)
                for i, (a, b) in spans.items()
            ]
        )


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
def test_fresh_prompts_attend_causally_to_themselves(scoring):
    world = World([5, 3], [2, 0])
    spans = {0: (0, 5), 1: (0, 3)}
    found = world.step(spans, chunks=[Chunk(0, 2, 0, 5), Chunk(5, 0, 0, 3)], **scoring)
    assert found == pytest.approx(world.expected(spans, **scoring))


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
def test_equal_prompts_side_by_side_are_one_call(scoring):
    world = World([4, 4, 4], [0, 3, 1])
    spans = dict.fromkeys(range(3), (0, 4))
    found = world.step(spans, chunks=[Chunk(0, 0, 0, 4, copies=3)], **scoring)
    assert found == pytest.approx(world.expected(spans, **scoring))


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
def test_a_later_chunk_attends_to_what_its_row_holds(scoring):
    world = World([9, 6], [1, 0])
    world.step({0: (0, 4), 1: (0, 5)}, chunks=[Chunk(0, 1, 0, 4), Chunk(4, 0, 0, 5)], **scoring)
    spans = {0: (4, 9), 1: (5, 6)}
    found = world.step(spans, chunks=[Chunk(0, 1, 4, 5), Chunk(5, 0, 5, 1)], **scoring)
    assert found == pytest.approx(world.expected(spans, **scoring))


@pytest.mark.parametrize("scoring", SCORINGS.values(), ids=SCORINGS)
def test_decoding_sequences_attend_to_their_own_length(scoring):
    world = World([7, 2, 5], [1, 2, 3])
    before = {0: (0, 6), 1: (0, 1), 2: (0, 4)}
    world.step(before, chunks=[Chunk(0, 1, 0, 6), Chunk(6, 2, 0, 1), Chunk(7, 3, 0, 4)], **scoring)
    spans = {0: (6, 7), 1: (1, 2), 2: (4, 5)}
    found = world.step(spans, runs=[Run(0, 1, 3, longest=7, shortest=2)], **scoring)
    assert found == pytest.approx(world.expected(spans, **scoring))


def test_decoding_and_prompts_share_a_step():
    world = World([6, 4, 3], [0, 1, 4])
    world.step({0: (0, 5), 1: (0, 3)}, chunks=[Chunk(0, 0, 0, 5), Chunk(5, 1, 0, 3)])
    spans = {0: (5, 6), 1: (3, 4), 2: (0, 3)}
    runs = [Run(0, 0, 1, 6, 6), Run(1, 1, 1, 4, 4)]
    assert world.step(spans, runs, [Chunk(2, 4, 0, 3)]) == pytest.approx(world.expected(spans))


def test_what_an_earlier_sequence_left_behind_is_not_seen():
    world = World([8, 3], [0, 0])
    world.step({0: (0, 8)}, chunks=[Chunk(0, 0, 0, 8)])
    world.step({1: (0, 2)}, chunks=[Chunk(0, 0, 0, 2)])
    spans = {1: (2, 3)}
    assert world.step(spans, runs=[Run(0, 0, 1, 3, 3)]) == pytest.approx(world.expected(spans))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"areal_step": None}, "does not hand its attention"),
        ({"attention_mask": torch.zeros(1)}, "mask or bias of its own"),
        ({"position_bias": torch.zeros(1)}, "mask or bias of its own"),
    ],
)
def test_an_attention_that_cannot_be_expressed_is_refused(arguments, problem):
    q, k, v = (torch.zeros(1, heads, 1, D) for heads in (HQ, HK, HK))
    step = PackedStep(KVCache(torch.float32, torch.device("cpu")), torch.zeros(1), torch.zeros(1), (), ())
    with pytest.raises(InputError, match=problem):
        attend(SimpleNamespace(layer_idx=0), q, k, v, **({"attention_mask": None, "areal_step": step} | arguments))
