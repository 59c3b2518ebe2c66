"""Proof, when a model starts, that the engine computes what the model means.

A model may do in its attention or between its tokens what a packed step cannot express (a
recurrent state, a mask of its own). Instead of a list of such models there is one comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from areal_plugins import InputError
from areal_plugins.builtin.engine import attention
from areal_plugins.builtin.engine.attention import Chunk, Run
from areal_plugins.builtin.engine.plan import Plan
from areal_plugins.builtin.engine.runner import Runner

_LENGTHS = (7, 4)
_CHUNK = 2
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3, torch.bfloat16: 0.2, torch.float16: 0.05}
"""Largest difference of logits, as a share of their standard deviation."""


@torch.inference_mode()
def check(runner: Runner, where: str) -> None:
    """Compare prompts computed in chunks and then decoded with transformers' plain forward pass.

    Raises:
        InputError: the logits differ, or would in longer prompts.

    """
    model, cache = runner.model, runner.cache
    vocabulary = model.config.get_text_config().vocab_size
    sequences = [(np.arange(n) * 31 + 7 * n) % vocabulary for n in _LENGTHS]
    model.set_attn_implementation("eager")
    plain = [_plain(model, sequence, cache.device) for sequence in sequences]
    model.set_attn_implementation(attention.NAME)
    cache.resize(len(sequences), max(_LENGTHS))
    found = [runner.logits(plan) for plan in _plans(sequences)]
    expected = torch.stack([logits[end] for end in (_CHUNK - 1, -2, -1) for logits in plain])
    worst = float((torch.cat(found) - expected).abs().max() / expected.std().clamp_min(1e-6))
    cache.resize(0, 0)
    if not worst <= _TOLERANCE[cache.dtype]:
        problem = f"{type(model).__name__} computes other logits here than in transformers (by {worst:.2g} sigma)"
        raise InputError(where, problem, "its layers are not plain attention; use another engine")
    _check_windows(runner, where)


def _check_windows(runner: Runner, where: str) -> None:
    """A window is longer than the probe, so that it shows in what layers ask for alone."""
    config = runner.model.config.get_text_config()
    if getattr(config, "sliding_window", None) is None or getattr(config, "use_sliding_window", True) is False:
        return
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    for layer, window in runner.windows.items():
        if kinds[layer] == "sliding_attention" and window is None:
            problem = f"{type(runner.model).__name__} does not tell its attention the sliding window of layer {layer}"
            raise InputError(where, problem, "use another engine")


def _plain(model: Any, sequence: np.ndarray, device: torch.device) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=torch.from_numpy(sequence).to(device)[None], use_cache=False).logits[0]
    return logits


def _plans(sequences: list[np.ndarray]) -> Iterator[Plan]:
    """Two chunks of each prompt, then its last token by itself."""
    lengths = [len(s) for s in sequences]
    yield _packed(sequences, [0] * len(lengths), [_CHUNK] * len(lengths), decode=False)
    yield _packed(sequences, [_CHUNK] * len(lengths), [n - 1 for n in lengths], decode=False)
    yield _packed(sequences, [n - 1 for n in lengths], lengths, decode=True)


def _packed(sequences: list[np.ndarray], starts: list[int], ends: list[int], *, decode: bool) -> Plan:
    spans = [np.arange(start, end) for start, end in zip(starts, ends, strict=True)]
    sizes = np.array([len(span) for span in spans])
    offsets = np.cumsum(sizes) - sizes
    every = np.arange(len(spans))
    chunks = [Chunk(int(offsets[row]), int(row), starts[row], int(sizes[row])) for row in every]
    return Plan(
        tokens=np.concatenate([s[span] for s, span in zip(sequences, spans, strict=True)]),
        positions=np.concatenate(spans),
        rows=np.repeat(every, sizes),
        runs=[Run(0, 0, len(spans), max(ends), min(ends))] if decode else (),
        chunks=() if decode else chunks,
        keep=offsets + sizes - 1,
        sampled=every,
        draw=every,
    )
