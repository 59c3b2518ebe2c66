"""`areal-plugins explain`: what a spec amounts to, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from areal_core.errors import Severity, SpecError
from areal_core.spec import examine
from areal_core.spec.findings import count_line, render
from areal_plugins.cli import add_overrides, dumped
from areal_plugins.explain import explanation

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
    yield from _memory(data["memory"])
    yield f"\nweight update\n  {_update(data['update'])}"
    yield "\nwho waits for what"
    yield from _waits(data["waits"])
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
    for worker in devices["workers"]:
        numbers = ", ".join(map(str, worker["devices"]))
        axes = " x ".join(f"{axis} {size}" for axis, size in worker["parallel"].items())
        if not worker["name"].startswith("rollout"):
            yield [worker["name"], f"{devices['platform']} {numbers}".rstrip(), "", axes]


def _memory(plan: Mapping[str, Any] | None) -> Iterator[str]:
    if plan is None:
        yield "\nmemory\n  not known: the model is not on this machine, and its name does not say how large it is"
        return
    yield f"\nmemory a device, estimated for {plan['parameters']:,} parameters (by {plan['known_by']})"
    rows = []
    for pool in ("train", "infer"):
        rows += [[pool, name, "not known" if count is None else _size(count)] for name, count in plan[pool].items()]
        rows.append([pool, "together", _size(plan[f"{pool}_total"])])
    yield from _columns(rows)


def _update(update: Mapping[str, Any]) -> str:
    size = "bytes not known" if update["bytes"] is None else _size(update["bytes"])
    mechanism = f" by {update['mechanism']}" if update["mechanism"] else ""
    checked = ", verified" if update["verified"] else ""
    engines = f"{update['engines']} engine{'s' if update['engines'] != 1 else ''}"
    bucket = _size(update["bucket_bytes"])
    return f"{size} to {engines} through {update['transport']}{mechanism}, in buckets of {bucket}{checked}"


def _waits(entries: list[Mapping[str, str]]) -> Iterator[str]:
    stage = None
    for wait in entries:
        if wait["stage"] != stage:
            stage = wait["stage"]
            yield f"  {stage}"
        yield f"    {wait['what']}: until {wait['until']}" if wait["until"] != "-" else f"    {wait['what']}"
        yield f"      meanwhile: {wait['meanwhile']}"


def _columns(rows: list[list[str]]) -> Iterator[str]:
    widths = [min(48, max(map(len, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _size(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count / 1024:.0f} KiB"
