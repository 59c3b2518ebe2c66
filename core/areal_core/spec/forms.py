"""The types that a spec's fields may have, in words and by the shape of data they take."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from attrs import has

_SHAPES: dict[Any, tuple[str, ...]] = {
    str: ("text",),
    Path: ("text",),
    int: ("int",),
    float: ("int", "float"),
    bool: ("bool",),
    type(None): ("null",),
}

_WORDS = {
    str: "a text",
    Path: "a path",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}

_SEQUENCES = (tuple, list, Sequence)
_MAPPINGS = (dict, Mapping)


@cache
def hints(cls: Any) -> dict[str, Any]:
    """The types of a class's fields, resolved."""
    return get_type_hints(cls)


def is_union(form: Any) -> bool:
    """`A | B`, however it is spelled."""
    return get_origin(form) in (Union, types.UnionType)


def is_literal(form: Any) -> bool:
    """`Literal[...]`."""
    return get_origin(form) is Literal


def is_sequence(form: Any) -> bool:
    """A tuple, list or `Sequence`, with or without the type of its items."""
    return form in _SEQUENCES or get_origin(form) in _SEQUENCES


def is_mapping(form: Any) -> bool:
    """A dict or `Mapping`, with or without the types of its items."""
    return form in _MAPPINGS or get_origin(form) in _MAPPINGS


def members(form: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the type of a list's items."""
    return get_args(form) if is_union(form) or is_sequence(form) else ()


def contains(literal: Any, data: Any) -> bool:
    """Whether `data` is one of the literal's values, type and all."""
    return any(type(data) is type(value) and data == value for value in get_args(literal))


def shape(data: Any) -> str:
    """The kind of data, as YAML and JSON know it."""
    names = {str: "text", bool: "bool", int: "int", float: "float", type(None): "null", dict: "map", list: "list"}
    return names[type(data)]


def shapes(form: Any) -> tuple[str, ...]:
    """The kinds of data that `form` may be read from; empty: cannot be told."""
    if form in _SHAPES:
        return _SHAPES[form]
    if is_literal(form):
        return tuple(dict.fromkeys(shape(value) for value in get_args(form)))
    if is_union(form):
        return tuple(s for member in get_args(form) for s in shapes(member))
    if is_sequence(form):
        return ("list",)
    return ("map",) if is_mapping(form) or has(form) else ()


def describe(form: Any) -> str:
    """`form` in words: what a message says was expected."""
    if form in _WORDS:
        return _WORDS[form]
    if is_literal(form):
        return any_of([f"`{value}`" for value in get_args(form)])
    if is_union(form):
        return any_of([describe(member) for member in get_args(form)])
    if is_sequence(form):
        return "a list"
    return "a mapping" if is_mapping(form) or has(form) else getattr(form, "__name__", str(form))


def any_of(words: list[str]) -> str:
    """`a, b or c`."""
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def printable(text: str) -> str:
    """The text with what cannot be seen spelled out."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)


def show(data: Any) -> str:
    """Data as a message names it."""
    if isinstance(data, dict):
        return "a mapping"
    if isinstance(data, list):
        return "a list"
    if data is None or isinstance(data, bool):
        return {None: "null", True: "true", False: "false"}[data]
    if isinstance(data, str):
        return f"the text {data!r}" if len(data) <= 60 else f"the text {data[:57]!r}..."
    return f"the number {data}" if isinstance(data, float) or abs(data) < 10**30 else "that number"
