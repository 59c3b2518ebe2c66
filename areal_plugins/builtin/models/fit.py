"""How a model's sizes fit the rest of a spec. Light: no numpy, no torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_plugins import Finding

if TYPE_CHECKING:
    from areal_core.spec.model import Spec

POOLS = ("train", "infer")

_KEYS = {
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
}
"""What the sizes are called in the config.json of transformers' models."""


def sizes_of(directory: Path) -> dict[str, int]:
    """The sizes that a directory's config.json gives; none where there is no such file, or it is damaged."""
    try:
        config = json.loads((directory / "config.json").read_bytes())
    except (OSError, ValueError):
        return {}
    config = config if isinstance(config, dict) else {}
    nested = config.get("text_config")
    text: dict[str, Any] = nested if isinstance(nested, dict) else config
    found = {size: next((text[key] for key in keys if key in text), None) for size, keys in _KEYS.items()}
    return {size: value for size, value in found.items() if isinstance(value, int) and value > 0}


def misfits(spec: Spec, sizes: Mapping[str, Any]) -> Iterator[Finding]:
    """Heads that do not divide over tensor-parallel devices, and experts that do not over expert-parallel ones."""
    for pool in POOLS:
        for axis, size in getattr(spec.resources, pool).axes.items():
            path = ("resources", pool, "parallel", axis)
            if axis == "tp" and size > 1:
                yield from _heads(sizes, size, path)
            if axis == "ep" and size > 1:
                yield from _experts(sizes, size, path)
    axis, train = spec.parallel.get("expert"), spec.resources.train
    if axis is not None and (size := train.axes.get(axis, train.devices)) > 1:
        yield from _experts(sizes, size, ("parallel", "expert"))


def _heads(sizes: Mapping[str, int], devices: int, path: tuple[str, ...]) -> Iterator[Finding]:
    """Every device gets as many heads; a key-value head may be copied to several devices."""
    heads, kv_heads = sizes.get("heads", 0), sizes.get("kv_heads", 0)
    if heads % devices:
        message = f"the model's {heads} attention heads do not divide over {devices} tensor-parallel devices"
        yield Finding("heads-not-divisible", message, path)
    elif kv_heads % devices and devices % kv_heads:
        message = f"the model's {kv_heads} key-value heads neither divide over {devices} tensor-parallel devices, "
        yield Finding("heads-not-divisible", message + "nor do the devices over them", path)


def _experts(sizes: Mapping[str, int], devices: int, path: tuple[str, ...]) -> Iterator[Finding]:
    """Every device gets as many experts."""
    if (experts := sizes.get("experts", 0)) % devices:
        message = f"the model's {experts} experts do not divide over {devices} expert-parallel devices"
        yield Finding("experts-not-divisible", message, path)
