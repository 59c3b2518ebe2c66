"""The stages of a run, and the components that were chosen for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import fields

from areal_core.spec import Examined
from areal_core.spec.model import Spec
from areal_core.spec.resolve import Draft
from areal_core.spec.sections import section_at
from areal_core.spec.structure import Part


def stage(draft: Draft) -> dict[str, Any]:
    """What a stage consumes."""
    training, objective = draft.spec.training, draft.spec.objective
    total = sum(environment.weight for environment in draft.spec.environments)
    return {
        "name": draft.name,
        "objective": objective.type,
        "steps": training.max_steps,
        "batch_size": training.batch_size,
        "groups": training.batch_size // objective.group_size,
        "trajectories": training.max_steps * training.batch_size,
        "environments": {e.name or e.type: e.weight / total if total else 0.0 for e in draft.spec.environments},
    }


def components(examined: Examined) -> Iterator[dict[str, Any]]:
    """Each component once: where it stands, which plugin offers it, and why it is this one."""
    origins = {(c.kind, c.name): plugin.origin for plugin in examined.plugins for c in plugin.components}
    seen = set()
    for draft in examined.drafts:
        for part in sorted(draft.parts.values(), key=_place):
            if (part.path, part.name) not in seen:
                seen.add((part.path, part.name))
                yield {
                    "section": ".".join(map(str, part.path)),
                    "component": f"{part.kind}/{part.name}",
                    "plugin": origins.get((part.kind, part.name)),
                    "because": _reason(part, draft, examined),
                }


def _place(part: Part) -> tuple[int, str]:
    """In the order of the spec's sections, each before what stands in it."""
    sections = [f.name for f in fields(Spec)]
    return sections.index(str(part.path[0])), ".".join(map(str, part.path))


def _reason(part: Part, draft: Draft, examined: Examined) -> str:
    for choice in (examined.platform, examined.transport):
        if choice and choice.part is part and not choice.named:
            return choice.reason
    section = section_at(part.path)
    node, missing = draft.tree.nearest((*part.path, section.selector if section else "type"))
    return node.provenance if not missing or isinstance(node.value, str) else "default"
