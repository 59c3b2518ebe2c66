"""The pools of devices, and what each worker of a run gets of them."""

from __future__ import annotations

from typing import Any

from areal_core.pipeline import layout
from areal_core.spec.model import PoolSpec
from areal_core.spec.resolve import Draft


def devices(draft: Draft) -> dict[str, Any]:
    """The pools, and every worker of the run with its devices and axes."""
    spec, platform = draft.spec, draft.parts.get(("platform",))
    numbered = platform is not None and platform.name != "cpu"  # workers share cores
    slots = [*layout.trainers(spec), *layout.engines(spec), *layout.rollouts(spec)]
    return {
        "platform": platform.name if platform else None,
        "placement": spec.placement,
        "train": _pool(spec.resources.train),
        "infer": _pool(spec.resources.infer),
        "rollout": {"processes": spec.resources.rollout.cpus},
        "workers": [
            {"name": slot.name, "devices": list(slot.devices) if numbered else [], "parallel": dict(slot.parallel)}
            for slot in slots
        ],
    }


def _pool(pool: PoolSpec) -> dict[str, Any]:
    return {"devices": pool.devices, "nodes": pool.nodes, "parallel": dict(pool.axes)}
