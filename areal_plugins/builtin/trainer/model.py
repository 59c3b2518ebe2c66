"""Loading a causal LM for packed training, and proof that it can be trained packed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from areal_plugins import InputError
from areal_plugins.builtin.trainer import attention
from areal_plugins.builtin.trainer.logprob import log_probabilities
from areal_plugins.builtin.trainer.micro import place
from areal_plugins.builtin.trainer.packing import Layout, Packed
from areal_plugins.builtin.trainer.policy import Policy, evaluating, read

_LAYERS = {"full_attention", "sliding_attention"}

_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}
"""How far packed results may lie from plain ones, relative to the largest, by format of the matrix products."""


def load_model(directory: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """The model in `directory`, its weights in `dtype`, attending through `attention.packed_attention`.

    Raises:
        InputError: a file is missing or damaged, weights are missing, or its layers cannot be packed.

    """
    if not (directory / "config.json").is_file():
        raise InputError(str(directory), "it has no config.json", "give a Hugging Face model directory")
    try:
        _check_layers(directory, AutoConfig.from_pretrained(directory).get_text_config())
        model, report = _from_pretrained(directory, dtype)
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise InputError(str(directory), f"the model cannot be loaded: {error}") from error
    _check_weights(directory, report)
    _check_class(directory, model)
    _without_dropout(model)
    return model.to(device)


def recompute_activations(model: Any) -> None:
    """Keep only the layers' inputs for the backward pass."""
    # transformers 5.2x renames it; the older name goes with transformers 6
    enable = getattr(model, "activation_checkpointing_enable", None) or model.gradient_checkpointing_enable
    enable({"use_reentrant": False})


def check_packing(policy: Policy, directory: Path) -> None:
    """Read a few tokens packed with a shared prefix, and plainly, and compare; likewise the output layer.

    Catches what no flag tells: layers that mix neighbours (convolutions, recurrences), attention
    that ignores the packing, logits computed in a way of the model's own.

    Raises:
        InputError: they differ; says where.

    """
    tokens = np.arange(8) % policy.head(1.0).weight.shape[0]
    with evaluating(policy.model):
        packed = _hidden(policy, _PACKED, tokens)
        first, logits = _plain(policy, tokens[[0, 1, 2, 3, 4]])
        second, _ = _plain(policy, tokens[[0, 1, 2, 5, 6, 7]])
        targets = logits.argmin(dim=-1)
        ours, _ = log_probabilities(first, targets, policy.head(1.0))
        theirs = logits.log_softmax(dim=-1).gather(1, targets[:, None]).squeeze(1)
    tolerance, name = _TOLERANCE[policy.compute], type(policy.model).__name__
    error = _distance(packed, torch.cat([first, second[3:]]))
    if not error <= tolerance:
        raise InputError(str(directory), f"{name} reads packed sequences differently from single ones (by {error:.2g})")
    error = _distance(ours, theirs)
    if not error <= tolerance:
        raise InputError(
            str(directory), f"{name} computes logits in a way of its own (log-probabilities are {error:.2g} off)"
        )


_PACKED = Layout(common=np.array([3]), rest=np.array([[2, 3]]))


def _hidden(policy: Policy, layout: Layout, tokens: np.ndarray) -> torch.Tensor:
    """[X, C] hidden states of `tokens` [X] laid out as `layout`."""
    positions = np.concatenate([np.arange(b, e) for b, e in _spans(layout)])
    every = np.arange(len(tokens))
    packed = Packed(layout, tokens, positions, predict=every, targets=every, units=every, trajectory=every)
    return read(policy.model.base_model, place(packed, policy.device), policy.autocast())


def _spans(layout: Layout) -> Iterator[tuple[int, int]]:
    for common, rest in zip(layout.common, layout.rest, strict=True):
        yield 0, common
        for size in rest:
            yield common, common + size


def _plain(policy: Policy, tokens: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """[X, C] hidden states of one sequence alone, and [X, V] logits as the model computes them from those."""
    layout = Layout(common=np.array([0]), rest=np.array([[len(tokens)]]))
    hidden = _hidden(policy, layout, tokens)
    every = np.arange(len(tokens))
    micro = place(Packed(layout, tokens, every, every, every, every, every), policy.device)
    with policy.autocast():
        out = policy.model(input_ids=micro.tokens, position_ids=micro.positions, use_cache=False, grid=micro.grid)
    return hidden, out.logits[0].to(torch.promote_types(hidden.dtype, torch.float32))


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    return ((a - b).abs().max() / b.abs().max()).item()


@contextmanager
def without_progress() -> Iterator[None]:
    """No progress bars of transformers in the worker's log."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _from_pretrained(directory: Path, dtype: torch.dtype) -> tuple[Any, Mapping[str, Any]]:
    with without_progress():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            directory,
            dtype=dtype,
            attn_implementation=attention.NAME,
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are refused with what is missing
        )
    model, report = loaded
    return model, report


def _check_weights(directory: Path, report: Mapping[str, Any]) -> None:
    if report["missing_keys"]:
        raise InputError(str(directory), f"weights are missing: {_some(report['missing_keys'])}")
    if report["mismatched_keys"]:
        problem = f"weights have another shape than config.json says: {_some(report['mismatched_keys'])}"
        raise InputError(str(directory), problem)


def _check_class(directory: Path, model: Any) -> None:
    name = type(model).__name__
    if not model.is_backend_compatible():
        raise InputError(
            str(directory),
            f"{name} has no pluggable attention, which training on packed batches needs",
            "use an architecture that supports transformers' AttentionInterface",
        )
    if not isinstance(model.get_output_embeddings(), nn.Linear):
        raise InputError(str(directory), f"{name} has no linear output layer")


def _check_layers(directory: Path, config: Any) -> None:
    strange = sorted(set(getattr(config, "layer_types", None) or ()) - _LAYERS)
    if strange:
        problem = f"layers of the kinds {_some(strange)} cannot be packed, only full and sliding attention can"
        raise InputError(str(directory / "config.json"), problem)


def _without_dropout(model: nn.Module) -> None:
    """The engine draws without dropout, so log-probabilities are computed without it. Adapters' own comes later."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _some(names: Iterable[Any]) -> str:
    names = [str(name) for name in names]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
