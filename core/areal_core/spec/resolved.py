"""The resolved spec as plain data, which loads again to the same experiment, and where its values are from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import fields, has

from areal_core.spec.model import Spec
from areal_core.spec.node import Node, SpecPath
from areal_core.spec.sections import AUTO, PRIVATE, section_at
from areal_core.spec.structure import Part

Parts = Mapping[SpecPath, Part]


def plain_spec(spec: Spec, parts: Parts) -> dict[str, Any]:
    """Every key with its value: choices made, defaults filled in, paths absolute."""
    data = _plain(spec, (), parts)
    assert isinstance(data, dict)
    return data


def changes(stage: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """The sections of `stage` that are not the base's."""
    return {key: value for key, value in stage.items() if value != base[key]}


def origins(plain: Mapping[str, Any], tree: Node, stages: Sequence[Node]) -> dict[str, str]:
    """Where each dotted key's value comes from: `file:line`, `--set`, `env:NAME`, `chosen` or `default`."""
    found = {}
    for path, value in leaf_values(plain):
        inside_stage = path[0] == "stages" and path[2:] != ("name",)
        where, below = (stages[int(path[1])], path[2:]) if inside_stage else (tree, path)
        found[".".join(map(str, path))] = _origin(where, below, value)
    return found


def _plain(value: Any, path: SpecPath, parts: Parts) -> Any:
    if not has(type(value)):
        return unstructured(value) if not _holds_sections(value) else _items(value, path, parts)
    data = {f.name: _plain(getattr(value, f.name), (*path, f.name), parts) for f in fields(type(value)) if _public(f)}
    section, part = section_at(path), parts.get(path)
    if section and part:
        data[section.selector] = part.name
        options = unstructured(part.options if part.options is not None else part.raw)
        data |= options if not section.blocks else {part.name: options} if options else {}
    return data


def _public(f: Any) -> bool:
    return f.name not in PRIVATE


def _holds_sections(value: Any) -> bool:
    return isinstance(value, tuple) and any(has(type(item)) for item in value)


def _items(value: Any, path: SpecPath, parts: Parts) -> list[Any]:
    return [_plain(item, (*path, index), parts) for index, item in enumerate(value)]


def unstructured(value: Any) -> Any:
    """Classes to mappings, sequences to lists, paths to texts."""
    if has(type(value)):
        return {f.alias: unstructured(getattr(value, f.name)) for f in fields(type(value)) if f.init}
    if isinstance(value, Mapping):
        return {key: unstructured(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [unstructured(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def leaf_values(data: Any, path: SpecPath = ()) -> Iterator[tuple[SpecPath, Any]]:
    """Every value that is no mapping and no list, or an empty one."""
    if isinstance(data, Mapping) and data:
        for key, item in data.items():
            yield from leaf_values(item, (*path, key))
    elif isinstance(data, list) and data:
        for index, item in enumerate(data):
            yield from leaf_values(item, (*path, index))
    else:
        yield path, data


def _origin(tree: Node, path: SpecPath, value: Any) -> str:
    node, missing = tree.nearest(path)
    section = section_at(path[:-1])
    if section and section.auto and path[-1] == section.selector and value not in (AUTO, node.value):
        named = node.child(section.selector) if missing else None
        return "chosen" if named is None or named.value == AUTO else named.provenance
    bare = section is not None and missing == (section.selector,) and isinstance(node.value, str)
    return node.provenance if bare or not missing else "default"
