"""`areal-plugins explain`: what a spec amounts to, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import fields

from areal_core.errors import Severity, SpecError
from areal_core.spec import Examined, examine
from areal_core.spec.findings import count_line, render
from areal_core.spec.model import PoolSpec, Spec
from areal_core.spec.resolve import Draft
from areal_core.spec.resolved import leaf_values
from areal_core.spec.secrets import shown
from areal_core.spec.sections import section_at
from areal_core.spec.structure import Part
from areal_plugins.cli import add_overrides, dumped
from areal_plugins.cli.memory import memory_plan

EXAMPLES = """\
examples:
  areal-plugins explain spec.yaml
  areal-plugins explain spec.yaml --set weights.type=disk --json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`explain SPEC [--set K=V]... [--json]`."""
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help="YAML file")
    add_overrides(parser)
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def main(args: argparse.Namespace) -> int:
    """Print what is known; findings go to stderr, and 2 is returned when there are errors."""
    examined = examine(args.spec, args.overrides)
    if not examined.drafts:
        raise SpecError(examined.findings)
    data = explanation(examined)
    print(dumped(data) if args.json else "\n".join(_text(data)))
    if examined.findings:
        findings = map(render, examined.findings)
        print(*findings, count_line(examined.findings), sep="\n", file=sys.stderr)
    return 2 if any(f.severity is Severity.ERROR for f in examined.findings) else 0


def explanation(examined: Examined) -> dict[str, Any]:
    """Everything that `explain` shows, as plain data."""
    first = examined.drafts[0]
    return {
        "name": first.spec.name,
        "seed": first.spec.seed,
        "sources": list(examined.sources),
        "stages": [_stage(draft) for draft in examined.drafts],
        "components": list(_components(examined)),
        "devices": _devices(first.spec, first),
        "memory": memory_plan(first),
        "values": [
            {"key": key, "value": value, "origin": examined.origins[key]}
            for path, value in leaf_values(shown(examined.resolved, examined.origins))
            for key in [".".join(map(str, path))]
        ],
    }


def _stage(draft: Draft) -> dict[str, Any]:
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


def _components(examined: Examined) -> Iterator[dict[str, Any]]:
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


def _devices(spec: Spec, draft: Draft) -> dict[str, Any]:
    platform = draft.parts.get(("platform",))
    return {
        "platform": platform.name if platform else None,
        "placement": spec.placement,
        "train": _pool(spec.resources.train),
        "infer": _pool(spec.resources.infer),
        "rollout": {"processes": spec.resources.rollout.cpus},
    }


def _pool(pool: PoolSpec) -> dict[str, Any]:
    return {"devices": pool.devices, "nodes": pool.nodes, "parallel": dict(pool.axes)}


# --- text --------------------------------------------------------------------------------------------


def _text(data: Mapping[str, Any]) -> Iterator[str]:
    yield f"{data['name']}, seed {data['seed']}, from {', '.join(data['sources'])}"
    yield "\nstages"
    for stage in data["stages"]:
        yield f"  {stage['name']}: {stage['objective']}, {stage['steps']} steps of {stage['batch_size']} trajectories"
        yield from (f"    {name}: {share:.0%} of the tasks" for name, share in stage["environments"].items())
    yield "\ncomponents"
    yield from _columns([[c["section"], c["component"], c["plugin"] or "-", c["because"]] for c in data["components"]])
    yield "\ndevices"
    yield from _columns(list(_device_rows(data["devices"])))
    if data["memory"]:
        yield f"\nmemory, for {data['memory']['parameters']:,} parameters; activations and KV cache come on top"
        yield from _columns([[name, _size(count)] for name, count in data["memory"]["bytes"].items()])
    yield "\nvalues"
    yield from _columns([[v["key"], json.dumps(v["value"], ensure_ascii=False), v["origin"]] for v in data["values"]])


def _device_rows(devices: Mapping[str, Any]) -> Iterator[list[str]]:
    for pool in ("train", "infer"):
        layout = devices[pool]
        axes = " x ".join(f"{axis} {size}" for axis, size in layout["parallel"].items())
        on = f"{layout['devices']} x {devices['platform']}"
        yield [pool, on, f"{layout['nodes']} node{'s' if layout['nodes'] != 1 else ''}", axes]
    yield ["rollout", f"{devices['rollout']['processes']} processes", "", ""]
    yield ["placement", devices["placement"], "", ""]


def _columns(rows: list[list[str]]) -> Iterator[str]:
    widths = [min(48, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1024:.0f} KiB"
