"""Files, parents and overrides into one tree."""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, fields, frozen, has

from areal_core.errors import Finding, Severity
from areal_core.spec import paths
from areal_core.spec.findings import Report, did_you_mean
from areal_core.spec.forms import hints
from areal_core.spec.interpolate import interpolate
from areal_core.spec.load import MAX_DEPTH, Unreadable, compose, parse, read_source
from areal_core.spec.model import Spec
from areal_core.spec.node import UNKNOWN, Node, Source, Span, SpecPath
from areal_core.spec.sections import PRIVATE, chosen, section_at, spelled_out, without_private

API_VERSION_OF_SPECS = "areal/v1"

OLDER_VERSIONS: tuple[str, ...] = ()
"""What `areal-plugins migrate` rewrites."""


def merge(base: Node, over: Node, path: SpecPath = ()) -> Node:
    """`over` on top of `base`: mappings merge key by key, all else replaces.

    Where `over` chooses another component, the private options of the old one go.
    """
    section = section_at(path)
    if section and isinstance(over.value, dict):
        base = spelled_out(base, section)
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    if section and section.selector in over.value and chosen(over, section) != chosen(base, section):
        base = without_private(base, section)
    merged = dict(base.value)
    for key, child in over.value.items():
        merged[key] = merge(merged[key], child, (*path, key)) if key in merged else child
    return over.with_value(merged)


@frozen(repr=False, eq=False)
class Files:
    """Reads a spec with all that it extends; `names` are the files in the order they were read."""

    report: Report
    names: list[str] = field(factory=list)

    def load(self, name: str) -> Node:
        """The file `name` over its parents.

        Raises:
            Unreadable: it. Where a parent cannot be read, what it may say is unknown.
        """
        return self._load(read_source(name, self.report), ())

    def _load(self, source: Source, below: tuple[str, ...]) -> Node:
        root = parse(source, self.report)
        self.names.append(source.name)
        self._check_version(root)
        extends = root.value.pop("extends", None)
        if extends is None:
            return root
        below = (*below, paths.real(source.name))
        parents = [self._parent(item, below) for item in self._listed(extends)]
        tree = parents[0] if parents else root.with_value({})
        for above in (*parents[1:], root):
            tree = merge(tree, above)
        return evolve(tree, source=root.source, span=root.span)

    def _listed(self, extends: Node) -> Iterable[Node]:
        items = extends.value if isinstance(extends.value, list) else [extends]
        for item in (interpolate(item, self.report) for item in items):
            if isinstance(item.value, str):
                yield item
            else:
                message = "extends takes a file, or a list of files"
                self.report.error("bad-type", message, ("extends",), location=item.location)

    def _parent(self, item: Node, below: tuple[str, ...]) -> Node:
        name = _beside(item.source, item.value)
        if paths.real(name) in below:
            chain = " -> ".join([*(os.path.relpath(file) for file in below), name])
            self.report.error("extends-cycle", f"the file extends itself: {chain}", location=item.location)
            return _unknown(Spec, item.source)
        try:
            return self._load(read_source(name, self.report, item.location), below)
        except Unreadable:
            return _unknown(Spec, item.source)

    def _check_version(self, root: Node) -> None:
        version = root.value.pop("apiVersion", None)
        if version is not None and version.value != API_VERSION_OF_SPECS:
            self.report.findings.append(version_finding(version, API_VERSION_OF_SPECS, OLDER_VERSIONS))


def version_finding(version: Node, current: str, older: Sequence[str]) -> Finding:
    """What is wrong with an `apiVersion` that is not the `current` one, and the way out."""
    message = f"apiVersion {version.value} is unknown; this version reads {current}"
    hint = f"write {current}, or remove the line"
    if version.value in older:
        message = f"apiVersion {version.value} is older than {current}, which this version reads"
        import shlex  # only when something is wrong

        hint = f"areal-plugins migrate {shlex.quote(version.source.name)}"
    elif _number(version.value) > _number(current):
        hint = "the spec is of a newer areal-plugins: pip install --upgrade areal-plugins"
    return Finding("unknown-version", message, ("apiVersion",), hint, Severity.ERROR, version.location)


def _number(version: object) -> int:
    """N of `areal/vN`; -1 for all else."""
    found = re.fullmatch(r"areal/v([0-9]{1,9})", str(version))
    return int(found[1]) if found else -1


def _unknown(cls: Any, source: Source) -> Node:
    """What a file that cannot be read may have said: any value of any key, and any plugin."""
    types = {f.name: hints(cls)[f.name] for f in fields(cls) if f.name not in PRIVATE}
    known = {key: _unknown(form, source) if has(form) else Node(UNKNOWN, source) for key, form in types.items()}
    return Node(known | ({"plugins": Node(UNKNOWN, source)} if cls is Spec else {}), source)


def _beside(source: Source, path: str) -> str:
    """A file named in `source`, as its user would name it."""
    return paths.absolute(Path(source.name).parent, path)


def override(tree: Node, text: str, report: Report) -> Node:
    """The tree with `a.b.c=value`; list items by index or by their `name`."""
    source = Source("--set", text, Path.cwd(), kind="--set")
    dotted, equals, _ = text.partition("=")
    parts = _parts(dotted)
    if not equals or not all(part for part, _ in parts):
        hint = "write --set section.key=value"
        report.error("bad-override", f"{text!r} is no assignment", location=source.location(Span()), hint=hint)
        return tree
    if len(parts) > MAX_DEPTH:
        message = f"a path of {len(parts)} keys leads nowhere: a spec is at most {MAX_DEPTH} deep"
        report.error("bad-override", message, location=source.location(Span()))
        return tree
    try:
        value = compose(_blanked(source, len(dotted) + 1), report)
    except Unreadable:
        return tree
    return _put(tree, parts, _from(source, value), (), report)


_Part = tuple[str, Span]


def _parts(dotted: str) -> list[_Part]:
    parts, column = [], 0
    for part in dotted.split("."):
        parts.append((part, Span(0, column, max(1, len(part)))))
        column += len(part) + 1
    return parts


def _blanked(source: Source, width: int) -> Source:
    """The value alone, at the column where it stands."""
    return evolve(source, text=" " * width + source.text[width:])


def _from(source: Source, node: Node) -> Node:
    """A value read from part of a source, with excerpts of the whole."""
    value = node.value
    if isinstance(value, dict):
        value = {key: _from(source, child) for key, child in value.items()}
    elif isinstance(value, list):
        value = [_from(source, item) for item in value]
    return evolve(node, value=value, source=source)


def _put(node: Node, parts: list[_Part], value: Node, path: SpecPath, report: Report) -> Node:
    """`value` at the end of `parts` below `node`, which stands at `path`."""
    if node.value is UNKNOWN:
        return node
    section = section_at(path)
    node = spelled_out(node, section) if section else node
    if isinstance(node.value, list):
        return _put_item(node, parts, value, path, report)
    (part, span), rest = parts[0], parts[1:]
    if node.value is not None and not isinstance(node.value, dict):
        message = f"{'.'.join(map(str, path))} is a single value and has no key {part}"
        report.error("bad-override", message, path, location=value.source.location(span))
        return node
    node = node.with_value(node.value or {})
    if section and part == section.selector and not rest and value.value != chosen(node, section):
        node = without_private(node, section)
    below = node.value.get(part) or Node({}, value.source, span, span)
    put = _put(below, rest, value, (*path, part), report) if rest else evolve(value, key=span)
    return node.with_value({**node.value, part: put})


def _put_item(node: Node, parts: list[_Part], value: Node, path: SpecPath, report: Report) -> Node:
    (part, span), rest = parts[0], parts[1:]
    names = [_name(item) for item in node.value]
    index = int(part) if part.isdecimal() else names.index(part) if part in names else -1
    if not 0 <= index < len(node.value):
        message = f"{'.'.join(map(str, path))} has no item {part}"
        count = f"items are 0 to {len(node.value) - 1}" if node.value else "it is empty"
        hint = count if part.isdecimal() else did_you_mean(part, [n for n in names if n]) or count
        report.error("bad-override", message, path, hint, value.source.location(span))
        return node
    item = _put(node.value[index], rest, value, (*path, index), report) if rest else value
    return node.with_value([*node.value[:index], item, *node.value[index + 1 :]])


def _name(item: Node) -> str:
    """What a list item is called: its name, else its type."""
    if isinstance(item.value, dict):
        named = item.value.get("name") or item.value.get("type")
        return str(named.value) if named else ""
    return str(item.value)
