"""How much memory a device needs for what, before anything runs."""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen

from areal_core.descriptors import ModelShape
from areal_core.pipeline.layout import axes, split
from areal_core.spec.resolve import Draft
from areal_plugins.builtin.trainer.activations import ON_PROCESSORS, activation_bytes, tokens_that_fit

FORMATS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number; `auto` is counted as float32, the most it may become."""

SHARDED = ("fsdp2", "deepspeed")
"""Backends that spread weights, gradients and moments over data-parallel ranks, too."""


@frozen
class Size:
    """Parameters of the model, how that is known, its sizes if they are, and bytes of a number."""

    parameters: int
    known_by: str
    shape: ModelShape | None
    width: int


def model_size(draft: Draft) -> Size | None:
    """From the files, or from a name such as Qwen3-0.6B; None where neither says."""
    part = draft.parts.get(("model",))
    count = shape = None
    if part is not None and part.descriptor is not None and part.options is not None:
        count = part.descriptor.parameters(part.options) if part.descriptor.parameters else None
        shape = part.descriptor.shape(part.options) if part.descriptor.shape else None
    width = FORMATS.get(draft.spec.model.dtype, 4)
    if count is not None:
        return Size(count, "the model itself", shape, width)
    named = _by_name(draft)
    return Size(named, "its name", shape, width) if named else None


def memory_plan(draft: Draft) -> dict[str, Any] | None:
    """Bytes a device, by what they are for; None when nothing says how large the model is.

    Data parallelism replicates, but with the backends in `SHARDED`; all other axes split. Adapters' own
    gradients and moments are small beside the weights and not counted. A None is not known before a run.
    """
    size = model_size(draft)
    if size is None:
        return None
    train, infer = _trainer(draft, size), _engine(draft, size)
    return {
        "parameters": size.parameters,
        "known_by": size.known_by,
        "train": train,
        "infer": infer,
        "train_total": sum(count or 0 for count in train.values()),
        "infer_total": sum(count or 0 for count in infer.values()),
    }


def _trainer(draft: Draft, size: Size) -> dict[str, int | None]:
    spec = draft.spec
    pool = spec.resources.train
    shares = split(pool) * (axes(pool)["dp"] if spec.training.backend in SHARDED else 1)
    weights = _share(size.parameters * size.width, shares)
    trained = 0 if spec.model.lora is not None else weights
    found: dict[str, int | None] = {"weights": weights, "gradients": trained, "optimizer": 2 * trained}
    if spec.objective.reference is not None:
        found["reference"] = weights
    if spec.objective.critic is not None:
        found["critic"] = weights + 3 * trained
    return {**found, "activations": _activations(draft, size)}


def _activations(draft: Draft, size: Size) -> int | None:
    """Of one micro-batch. What the `torch` trainer chooses for itself is known on processors alone."""
    training, shape, platform = draft.spec.training, size.shape, draft.parts.get(("platform",))
    if shape is None:
        return None
    width = 2 if training.amp.enabled else size.width
    kept = activation_bytes(shape.layers, shape.hidden, shape.inner, width, training.activation_checkpointing)
    tokens = training.micro_batch_tokens
    if not tokens and platform is not None and platform.name == "cpu":
        tokens = tokens_that_fit(ON_PROCESSORS, kept)
    return _share(tokens * kept, split(draft.spec.resources.train)) if tokens else None


def _engine(draft: Draft, size: Size) -> dict[str, int | None]:
    spec = draft.spec
    shares, total = split(spec.resources.infer), size.parameters * size.width
    return {
        "weights": _share(total, shares),
        "kv cache": _kv_cache(draft, size, shares),
        "transfer": min(spec.weights.bucket_mib << 20, total),
    }


def _kv_cache(draft: Draft, size: Size, shares: int) -> int | None:
    """Full to its limit: `kv_tokens` of the engine, else `max_concurrent` sequences of the longest length."""
    part, shape = draft.parts.get(("inference",)), size.shape
    if part is None or shape is None:
        return None
    longest = getattr(part.options, "max_model_len", None) or shape.positions
    tokens = getattr(part.options, "kv_tokens", None) or draft.spec.inference.max_concurrent * longest
    return _share(2 * shape.layers * shape.kv_width * size.width * tokens, shares)


def _share(total: int, shares: int) -> int:
    return -(-total // shares)


def _by_name(draft: Draft) -> int | None:
    """`0.6B` or `135M` in the model's name or path."""
    options = getattr(draft.parts.get(("model",)), "options", None)
    texts = (draft.spec.model.name, getattr(options, "path", None), draft.spec.model.type)
    for text in filter(None, texts):
        found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)([bm])(?![a-z0-9])", str(text).replace("-", " ").lower())
        if found:
            return int(float(found[1]) * (10**9 if found[2] == "b" else 10**6))
    return None
