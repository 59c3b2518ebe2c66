"""Findings as SARIF 2.1.0, which code hosts and editors show beside the lines.

https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from areal_core import installed
from areal_core.errors import Finding, Location, Severity
from areal_core.spec import codes
from areal_plugins.builtin.codes import CODES as COMPONENT_CODES

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Sequence[Finding]) -> dict[str, Any]:
    """One run with a rule a code and a result a finding; `unavailable` is a note.

    Hint, severity and the way through the spec are in a result's property bag, as `--format json` calls them.
    """
    found = sorted({finding.code for finding in findings})
    driver = {
        "name": "areal-plugins check",
        "version": installed.version("areal-plugins"),
        "rules": [_rule(code) for code in found],
    }
    results = [_result(finding, found.index(finding.code)) for finding in findings]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    meaning = codes.CODES.get(code) or COMPONENT_CODES.get(code)
    return {"id": code, **({"shortDescription": {"text": meaning}} if meaning else {})}


def _result(finding: Finding, rule: int) -> dict[str, Any]:
    text = finding.message + (f" ({finding.hint})" if finding.hint else "")
    return {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": "error" if finding.severity is Severity.ERROR else "note",
        "message": {"text": text},
        "locations": [{"physicalLocation": _place(finding.location)}] if finding.location else [],
        "properties": {"severity": finding.severity.value, "hint": finding.hint, "path": list(finding.path)},
    }


def _place(location: Location) -> dict[str, Any]:
    region = {
        "startLine": location.line,
        "startColumn": location.column,
        "endColumn": location.column + location.width,
    }
    return {"artifactLocation": {"uri": _uri(location.file)}, "region": region}


def _uri(file: str) -> str:
    """Relative paths stay relative, so that a host can match them with its files."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
