"""What a weight update moves, and how."""

from __future__ import annotations

from typing import Any

from areal_core.pipeline.layout import axes
from areal_core.spec.choose import Choice
from areal_core.spec.resolve import Draft
from areal_plugins.explain.memory import model_size


def update_plan(draft: Draft, transport: Choice | None) -> dict[str, Any]:
    """Bytes of a version, to how many engines, through which transport; None is not known here.

    Adapters are merged before they are published, so that a version is always all weights.
    """
    size, spec = model_size(draft), draft.spec
    known = transport is not None and transport.part.descriptor is not None
    capabilities = transport.part.descriptor.capabilities if known and transport else None
    return {
        "bytes": size.parameters * size.width if size else None,
        "engines": axes(spec.resources.infer)["dp"],
        "transport": transport.part.name if transport else spec.weights.type,
        "mechanism": transport.mechanism if transport else None,
        "scope": capabilities.scope if capabilities else None,
        "collective": capabilities.collective if capabilities else None,
        "bucket_bytes": spec.weights.bucket_mib << 20,
        "verified": spec.weights.verify,
    }
