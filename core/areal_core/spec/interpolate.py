"""`${env:NAME}` and `${env:NAME:-default}` in the texts of a spec; `$${` stands for `${`."""

from __future__ import annotations

import os
import re

from attrs import evolve

from areal_core.spec.findings import Report
from areal_core.spec.load import Unreadable, compose
from areal_core.spec.node import UNKNOWN, Node, Source

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<inside>[^}]*)(?P<end>\}?)")
_INSIDE = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)


def interpolate(node: Node, report: Report) -> Node:
    """The tree with every variable replaced.

    A plain value that is one reference and nothing else takes the variable's type, read as YAML;
    a quoted one stays a text. A variable that is not set and has no default leaves `UNKNOWN`.
    """
    if isinstance(node.value, dict):
        return node.with_value({key: interpolate(child, report) for key, child in node.value.items()})
    if isinstance(node.value, list):
        return node.with_value([interpolate(child, report) for child in node.value])
    if not isinstance(node.value, str) or "${" not in node.value:
        return node
    return _replaced(node, node.value, report)


def _replaced(node: Node, text: str, report: Report) -> Node:
    whole = _REFERENCE.fullmatch(text)
    if whole and not node.quoted and whole["inside"] is not None:
        value = _lookup(whole, node, report)
        return node.with_value(UNKNOWN) if value is None else _typed(value, whole["inside"], node, report)
    pieces, end = [], 0
    for match in _REFERENCE.finditer(text):
        value = "${" if match["inside"] is None else _lookup(match, node, report)
        if value is None:
            return node.with_value(UNKNOWN)
        pieces += [text[end : match.start()], value]
        end = match.end()
    return evolve(node, value="".join(pieces) + text[end:], origin=_origin(text) or node.origin)


def _lookup(match: re.Match[str], node: Node, report: Report) -> str | None:
    """The variable's value or the default; None, once reported, when there is neither."""
    inside = _INSIDE.fullmatch(match["inside"])
    if not inside or not match["end"]:
        hint = "write ${env:NAME} or ${env:NAME:-default}; $${ stands for ${"
        report.error("bad-reference", f"{match.group()} refers to nothing", hint=hint, location=node.location)
        return None
    value, default = os.environ.get(inside["name"]), inside["default"]
    if default is not None:
        return value or default.removeprefix(":-")
    if value is None:
        hint = f"set it, or write ${{env:{inside['name']}:-default}}"
        message = f"the variable {inside['name']} is not set"
        report.unavailable("missing-variable", message, hint=hint, location=node.location)
    return value


def _typed(text: str, inside: str, node: Node, report: Report) -> Node:
    """`text` read as YAML; what is no YAML is a text."""
    origin, found = _origin(inside), Report()
    try:
        value = compose(Source(origin, text, node.source.directory, kind="env"), found)
    except Unreadable:
        return evolve(node, value=text, origin=origin)
    for finding in found.findings:
        report.error(finding.code, f"{origin}: {finding.message}", hint=finding.hint, location=node.location)
    return _placed(value, node, origin)


def _placed(value: Node, node: Node, origin: str) -> Node:
    """Every part of what a variable holds stands where the variable is named."""
    if isinstance(value.value, dict):
        inner = {key: _placed(child, node, origin) for key, child in value.value.items()}
        return Node(inner, node.source, node.span, node.key, origin=origin)
    if isinstance(value.value, list):
        return Node([_placed(v, node, origin) for v in value.value], node.source, node.span, node.key, origin=origin)
    return Node(value.value, node.source, node.span, node.key, quoted=value.quoted, origin=origin)


def _origin(text: str) -> str:
    """`env:A, env:B` of the variables that a text names."""
    names = re.findall(r"env:([A-Za-z_][A-Za-z0-9_]*)", text)
    return ", ".join(f"env:{name}" for name in dict.fromkeys(names))
