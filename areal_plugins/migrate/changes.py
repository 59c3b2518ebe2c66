"""What a migration may do to a spec: each change is a few lines over the round-trip document.

A path is dotted; `*` stands for every item of a list. What stands at the top of a spec may stand in each of its stages,
too, so every change is made there as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from attrs import frozen
from ruamel.yaml.comments import CommentedMap, CommentedSeq

Document = CommentedMap
"""A spec as ruamel's round-trip loader holds it: with comments, order and places."""


@frozen
class Done:
    """One change that was made: at which line of the old file, to which key, and what."""

    line: int
    key: str
    what: str


class Change(Protocol):
    """A change that knows how to make itself."""

    def apply(self, document: Document) -> Iterator[Done]:
        """Change the document in place, and say what was changed."""
        ...


@frozen
class RenameKey:
    """The key at `path` is called `name` from now on; it keeps its place and its comments."""

    path: str
    name: str

    def apply(self, document: Document) -> Iterator[Done]:
        """Rename it wherever it stands."""
        for parent, key, shown in _found(document, self.path):
            line = _line(parent, key)
            place, comment = list(parent).index(key), parent.ca.items.pop(key, None)
            parent.insert(place, self.name, parent.pop(key))
            if comment is not None:
                parent.ca.items[self.name] = comment
            yield Done(line, shown, f"is now called {self.name}")


@frozen
class MoveKey:
    """The value at `path` stands at `to` from now on; both are relative to the spec, or to the stage."""

    path: str
    to: str

    def apply(self, document: Document) -> Iterator[Done]:
        """Move it; sections that are missing on the way are made, and one that is left empty goes."""
        for root, prefix in _roots(document):
            for parent, key, shown in _found_in(root, self.path.split("."), prefix):
                line, comment = _line(parent, key), parent.ca.items.pop(key, None)
                value = parent.pop(key)
                *sections, name = self.to.split(".")
                target = root
                for section in sections:
                    target = target.setdefault(section, CommentedMap())
                target[name] = value
                if comment is not None:
                    target.ca.items[name] = comment
                _drop_empty(root, self.path)
                yield Done(line, shown, f"moved to {'.'.join([*prefix, self.to])}")


@frozen
class ChangeValue:
    """The value at `path` becomes `new(value)`; `what` says why, for people."""

    path: str
    new: Callable[[Any], Any]
    what: str

    def apply(self, document: Document) -> Iterator[Done]:
        """Change it wherever the new value is another one."""
        for parent, key, shown in _found(document, self.path):
            old, line = parent[key], _line(parent, key)
            new = self.new(old)
            if new != old:
                parent[key] = new
                yield Done(line, shown, f"{old} is now {new}: {self.what}")


@frozen
class Note:
    """The meaning of what stands at `path` has changed in a way that only a person can judge."""

    path: str
    what: str

    def apply(self, document: Document) -> Iterator[Done]:
        """Write the note above the key."""
        for parent, key, shown in _found(document, self.path):
            line = _line(parent, key)
            if isinstance(parent, CommentedMap):
                column = parent.lc.col or 0
                parent.yaml_set_comment_before_after_key(key, before=f"migrated: {self.what}", indent=column)
            yield Done(line, shown, f"look at it: {self.what}")


_Place = tuple[Any, Any, str]


def _found(document: Document, path: str) -> Iterator[_Place]:
    """The container, the key and the dotted path of everything at `path`, in the spec and in its stages."""
    for root, prefix in _roots(document):
        yield from _found_in(root, path.split("."), prefix)


def _roots(document: Document) -> Iterator[tuple[Any, tuple[str, ...]]]:
    yield document, ()
    stages = document.get("stages")
    if isinstance(stages, CommentedSeq):
        for index, stage in enumerate(stages):
            if isinstance(stage, CommentedMap):
                yield stage, ("stages", str(index))


def _found_in(node: Any, parts: list[str], shown: tuple[str, ...]) -> Iterator[_Place]:
    head, *rest = parts
    if head == "*":
        keys: list[Any] = list(range(len(node))) if isinstance(node, CommentedSeq) else []
    else:
        keys = [head] if isinstance(node, CommentedMap) and head in node else []
    for key in keys:
        way = (*shown, str(key))
        if rest:
            yield from _found_in(node[key], rest, way)
        else:
            yield node, key, ".".join(way)


def _line(parent: Any, key: Any) -> int:
    """Where the key stands in the old file, from 1; a key that a change has made stands where its section does."""
    places = parent.lc.data or {}
    return int(places[key][0] if key in places else parent.lc.line or 0) + 1


def _drop_empty(root: Any, path: str) -> None:
    """Remove the sections on the way to `path` that a move has left empty."""
    parts = path.split(".")[:-1]
    for depth in range(len(parts), 0, -1):
        for parent, key, _ in list(_found_in(root, parts[:depth], ())):
            if isinstance(parent[key], CommentedMap) and not parent[key]:
                del parent[key]
