"""`areal-plugins check`: everything that can be known about specs without a device, all at once."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from areal_core.errors import Finding, Severity
from areal_core.manager import PluginRecord, State
from areal_core.spec import Examined, examine
from areal_core.spec.findings import count_line, render
from areal_plugins.cli import add_overrides, dumped

EXAMPLES = """\
examples:
  areal-plugins check specs/*.yaml
  areal-plugins check spec.yaml --set platform=npu --here
  areal-plugins check spec.yaml --format sarif > findings.sarif

A finding is an error (the spec is wrong on every machine) or unavailable (this machine lacks a
device, a driver, a plugin or a path). The exit code is 2 when there are errors, 0 otherwise.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`check SPEC... [--set K=V]... [--here] [--deep] [--format text|json|sarif]`."""
    parser.epilog = EXAMPLES
    parser.add_argument("specs", nargs="+", metavar="SPEC", help="YAML files")
    add_overrides(parser)
    parser.add_argument("--here", action="store_true", help="what this machine lacks is an error too, as for run")
    parser.add_argument("--deep", action="store_true", help="also import the selected components (may take long)")
    parser.add_argument("--format", choices=("text", "json", "sarif"), default="text", help="text by default")


def main(args: argparse.Namespace) -> int:
    """Print the findings; 2 when a spec has errors, 0 otherwise."""
    results = {spec: examine(spec, args.overrides) for spec in args.specs}
    findings = {spec: _findings(examined, args) for spec, examined in results.items()}
    for plugin in _broken(results.values()):
        print(f"warning: plugin {plugin.name} ({plugin.origin}): {plugin.state.value}: {plugin.cause}", file=sys.stderr)
    print(_FORMATS[args.format](findings))
    failing = (f for found in findings.values() for f in found if args.here or f.severity is Severity.ERROR)
    return 2 if any(failing) else 0


def _findings(examined: Examined, args: argparse.Namespace) -> list[Finding]:
    if not args.deep:
        return list(examined.findings)
    from areal_core.spec.deep import import_findings

    return [*examined.findings, *import_findings(examined)]


def _broken(results: Any) -> list[PluginRecord]:
    """Plugins that are installed and cannot be used, each once."""
    found = {p.name: p for examined in results for p in examined.plugins}
    return [p for p in found.values() if p.state in (State.IMPORT_FAILED, State.API_MISMATCH)]


def _text(findings: dict[str, list[Finding]]) -> str:
    lines = []
    for spec, found in findings.items():
        lines += [render(finding) for finding in found] or [f"{spec}: ok"]
    everything = [finding for found in findings.values() for finding in found]
    specs = f"{len(findings)} specs" if len(findings) > 1 else next(iter(findings))
    return "\n".join([*lines, f"{count_line(everything)} in {specs}"] if everything else lines)


def _json(findings: dict[str, list[Finding]]) -> str:
    everything = [finding for found in findings.values() for finding in found]
    errors = sum(f.severity is Severity.ERROR for f in everything)
    data = {
        "specs": [{"spec": spec, "findings": [_data(f) for f in found]} for spec, found in findings.items()],
        "errors": errors,
        "unavailable": len(everything) - errors,
    }
    return dumped(data)


def _data(finding: Finding) -> dict[str, Any]:
    place = finding.location
    return {
        "severity": finding.severity.value,
        "code": finding.code,
        "message": finding.message,
        "hint": finding.hint,
        "path": list(finding.path),
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "width": place.width if place else None,
    }


def _sarif(findings: dict[str, list[Finding]]) -> str:
    from areal_plugins.cli.sarif import sarif

    everything: Sequence[Finding] = [finding for found in findings.values() for finding in found]
    return dumped(sarif(everything))


_FORMATS = {"text": _text, "json": _json, "sarif": _sarif}
