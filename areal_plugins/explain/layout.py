"""Which worker gets which devices: as `areal_core.pipeline.compose` lays them out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from areal_core.spec.model import PoolSpec, Spec
from areal_core.spec.resolve import Draft


def devices(draft: Draft) -> dict[str, Any]:
    """The pools, and every worker of the run with its devices and axes."""
    spec, platform = draft.spec, draft.parts.get(("platform",))
    numbered = platform is not None and platform.name != "cpu"  # workers share cores
    return {
        "platform": platform.name if platform else None,
        "placement": spec.placement,
        "train": _pool(spec.resources.train),
        "infer": _pool(spec.resources.infer),
        "rollout": {"processes": spec.resources.rollout.cpus},
        "workers": [worker if numbered else {**worker, "devices": []} for worker in _workers(spec)],
    }


def axes(pool: PoolSpec) -> dict[str, int]:
    """The size of each axis, `dp` among them: what is left over when others are named."""
    given = dict(pool.axes)
    return {"dp": max(1, pool.devices // split(pool)), **given}


def split(pool: PoolSpec) -> int:
    """Devices that share one copy of the model: the product of all axes but `dp`."""
    product = 1
    for axis, size in pool.axes.items():
        product *= max(1, size) if axis != "dp" else 1
    return product


def _pool(pool: PoolSpec) -> dict[str, Any]:
    return {"devices": pool.devices, "nodes": pool.nodes, "parallel": dict(pool.axes)}


def _workers(spec: Spec) -> Iterator[dict[str, Any]]:
    train, infer = spec.resources.train, spec.resources.infer
    for rank in range(train.devices):
        name = f"trainer-{rank}" if train.devices > 1 else "trainer"
        yield {"name": name, "devices": [rank], "parallel": axes(train)}
    first = 0 if spec.placement == "colocated" else train.devices
    each, sizes = split(infer), axes(infer)
    for index in range(sizes.pop("dp")):
        own = list(range(first + index * each, first + (index + 1) * each))
        yield {"name": f"engine-{index}", "devices": own, "parallel": sizes}
    for index in range(spec.resources.rollout.cpus):
        yield {"name": f"rollout-{index}", "devices": [], "parallel": {}}
