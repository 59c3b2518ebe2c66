"""The `torch` inference engine: continuous batching over any causal language model of transformers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from attrs import field, frozen

from areal_plugins import CheckContext, EngineCapabilities, EngineDescriptor, Finding
from areal_plugins.builtin.room import room


@frozen
class TorchEngineOptions:
    """Limits of the engine, and what a weight update does to the key-value cache."""

    max_model_len: int | None = field(
        default=None, metadata={"doc": "Longest prompt and answer together; the model's own limit if null.", "ge": 2}
    )
    kv_tokens: int | None = field(
        default=None,
        metadata={
            "doc": "Most tokens the key-value cache has room for; null: max_concurrent x max_model_len, "
            "or what half of the free memory holds if that is less.",
            "ge": 2,
        },
    )
    prefill_tokens: int = field(
        default=512, metadata={"doc": "Most prompt tokens one step computes beside the decoding ones.", "ge": 1}
    )
    kv_on_update: Literal["rebuild", "keep"] = field(
        default="rebuild",
        metadata={"doc": "Running answers compute their cache anew under new weights, or keep the old one."},
    )


def check(context: CheckContext) -> Iterator[Finding]:
    """Limits that no prompt fits into beside its answer."""
    for key in ("max_model_len", "kv_tokens"):
        if (limit := getattr(context.options, key)) is not None:
            yield from room(context, limit, (*context.path, key))


DESCRIPTORS: tuple[EngineDescriptor, ...] = (
    EngineDescriptor(
        name="torch",
        summary="Continuous batching over any transformers causal language model",
        factory="areal_plugins.builtin.engine.engine:TorchEngine",
        options=TorchEngineOptions,
        capabilities=EngineCapabilities(accepts=("tensors", "hf-dir"), interruptible=True, shares_prefix=True),
        requires=("torch>=2.6", "transformers>=4.56", "safetensors>=0.5"),
        platforms=("cpu", "cuda"),
        check=check,
    ),
)
