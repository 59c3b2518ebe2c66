"""What can only be known by importing the components that a spec selects."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

from areal_core.contexts import ModuleRef
from areal_core.errors import Finding, PluginError
from areal_core.spec.findings import Report, locate, tidy
from areal_core.spec.resolve import Draft, Examined
from areal_core.spec.structure import Part
from areal_core.workers.build import load


def import_findings(examined: Examined) -> list[Finding]:
    """A finding for each selected component whose code cannot be imported here."""
    findings = [finding for draft in examined.drafts for finding in _of_stage(draft)]
    return tidy(findings)


def _of_stage(draft: Draft) -> list[Finding]:
    report = Report()
    for part in draft.parts.values():
        if part.descriptor is not None:
            _import(part, report)
    return [locate(finding, draft.tree) for finding in report.findings]


def _import(part: Part, report: Report) -> None:
    try:
        with redirect_stdout(sys.stderr):  # what it prints is no part of our output, which may be JSON
            load(ModuleRef(part.kind, part.name, part.descriptor.factory, ""))
    except PluginError as error:
        cause = error.__cause__
        tell = report.unavailable if isinstance(cause, ImportError) else report.error
        tell("import-failed", f"{error.plugin}: {error.problem}", part.path, error.way_out)
