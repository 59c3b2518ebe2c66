"""A spec as it was written: every key and value with the place it stands at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from areal_core.errors import Location

SpecPath = tuple[str | int, ...]
"""The way through a spec: keys, and indices of list items."""

UNKNOWN: Any = type("Unknown", (), {"__repr__": lambda _: "UNKNOWN"})()
"""A value that could not be had; why is already reported."""

_LINE_END = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@frozen(repr=False, eq=False)
class Source:
    """A text that values come from: a file, or one `--set`. Relative paths in it start at `directory`."""

    name: str
    text: str
    directory: Path
    kind: str = "file"

    @property
    def lines(self) -> list[str]:
        return _LINE_END.split(self.text)

    def location(self, span: Span) -> Location:
        """`span` with the text of its line."""
        lines = self.lines
        excerpt = lines[span.line] if span.line < len(lines) else ""
        return Location(self.name, span.line + 1, span.column + 1, excerpt, max(1, span.width))

    def at_offset(self, offset: int) -> Location:
        """The character at `offset`."""
        before = _LINE_END.split(self.text[:offset])
        return self.location(Span(len(before) - 1, len(before[-1])))


@frozen(repr=False, unsafe_hash=False)
class Span:
    """A piece of one line; line and column count from 0. A value that is left out has no width."""

    line: int = 0
    column: int = 0
    width: int = 1


@frozen(repr=False, eq=False)
class Node:
    """A value: a scalar, a dict of nodes or a list of nodes; `key` is where its key stands.

    `quoted` scalars are texts whatever they look like. `origin` overrides where the value is from.
    """

    value: Any
    source: Source
    span: Span = Span()
    key: Span | None = None
    quoted: bool = False
    origin: str | None = None

    @property
    def location(self) -> Location:
        """Where to point when the value is at fault: at a scalar itself, else at its key."""
        unseen = isinstance(self.value, dict | list) or not self.span.width
        return self.source.location(self.key if unseen and self.key else self.span)

    @property
    def key_location(self) -> Location:
        return self.source.location(self.key or self.span)

    @property
    def provenance(self) -> str:
        """`file:line`, `--set`, or the variable."""
        if self.origin:
            return self.origin
        return f"{self.source.name}:{self.span.line + 1}" if self.source.kind == "file" else self.source.kind

    def with_value(self, value: Any) -> Node:
        return evolve(self, value=value)

    def child(self, part: str | int) -> Node | None:
        """The value under a key or index."""
        if isinstance(self.value, dict):
            return self.value.get(part)
        if isinstance(self.value, list) and isinstance(part, int) and part < len(self.value):
            item: Node = self.value[part]
            return item
        return None

    def nearest(self, path: SpecPath) -> tuple[Node, SpecPath]:
        """The deepest value on the way to `path`, and what of the way is left."""
        node = self
        for depth, part in enumerate(path):
            below = node.child(part)
            if below is None:
                return node, path[depth:]
            node = below
        return node, ()


def plain(node: Node) -> Any:
    """The data without the places."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def leaves(node: Node, path: SpecPath = ()) -> Iterator[tuple[SpecPath, Node]]:
    """Every scalar, empty list and empty mapping, with its path."""
    if isinstance(node.value, dict) and node.value:
        for key, child in node.value.items():
            yield from leaves(child, (*path, key))
    elif isinstance(node.value, list) and node.value:
        for index, child in enumerate(node.value):
            yield from leaves(child, (*path, index))
    else:
        yield path, node
