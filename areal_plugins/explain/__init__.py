"""What a spec amounts to, before anything runs: `areal-plugins explain`."""

from __future__ import annotations

from typing import Any

from areal_core.spec import Examined
from areal_core.spec.resolved import leaf_values
from areal_core.spec.secrets import shown
from areal_plugins.explain.components import components, stage
from areal_plugins.explain.layout import devices
from areal_plugins.explain.memory import memory_plan
from areal_plugins.explain.update import update_plan
from areal_plugins.explain.waits import waits


def explanation(examined: Examined) -> dict[str, Any]:
    """Everything that `explain` shows, as plain data. The spec was resolved at least in part."""
    first = examined.drafts[0]
    return {
        "name": first.spec.name,
        "seed": first.spec.seed,
        "sources": list(examined.sources),
        "stages": [stage(draft) for draft in examined.drafts],
        "components": list(components(examined)),
        "devices": devices(first),
        "memory": memory_plan(first),
        "update": update_plan(first, examined.transport),
        "waits": list(waits(examined.drafts, examined.transport)),
        "values": [
            {"key": key, "value": value, "origin": examined.origins[key]}
            for path, value in leaf_values(shown(examined.resolved, examined.origins))
            for key in [".".join(map(str, path))]
        ],
    }
