"""How much memory a model's weights take where, before anything runs."""

from __future__ import annotations

from typing import Any

from areal_core.spec.resolve import Draft

FORMATS = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of one number; `auto` is counted as float32, the most it may become."""


def memory_plan(draft: Draft) -> dict[str, Any] | None:
    """Bytes a device, of what is certain; None when the model's size is not known without loading it.

    Full training holds weights, gradients and the two moments of Adam. Adapters hold weights only:
    theirs are small beside it. Data parallelism is counted as replication, all other axes as splitting.
    """
    model = draft.parts.get(("model",))
    count = model.descriptor.parameters if model and model.descriptor else None
    parameters = count(model.options) if model and count and model.options is not None else None
    if parameters is None:
        return None
    spec = draft.spec
    each = FORMATS.get(spec.model.dtype, 4)
    train, infer = (_share(parameters * each, pool.axes) for pool in (spec.resources.train, spec.resources.infer))
    copies = 1 if spec.model.lora is not None else 4
    transfer = min(spec.weights.bucket_mib << 20, parameters * each)
    found = {"trainer, weights": train, "trainer, gradients and moments": train * (copies - 1)}
    if spec.objective.reference is not None:
        found["trainer, reference"] = train
    if spec.objective.critic is not None:
        found["trainer, critic"] = train * copies
    found |= {"engine, weights": infer, "transfer, one bucket": transfer, "every new version": parameters * each}
    return {"parameters": parameters, "bytes": found}


def _share(total: int, axes: Any) -> int:
    split = 1
    for axis, size in axes.items():
        split *= 1 if axis == "dp" else max(1, size)
    return -(-total // split)
