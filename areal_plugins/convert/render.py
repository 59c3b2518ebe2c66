"""A spec as text: values in the order of our sections, each with where it is from, and comments between them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite, isnan
from textwrap import wrap
from typing import Any

from attrs import fields, frozen

from areal_core.spec import load
from areal_core.spec.model import Spec

WIDTH = 116
_PLAIN = re.compile(r"[A-Za-z_./][\w./+-]*(?: [\w./+-]+)*", re.ASCII)
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


@frozen
class Value:
    """What stands at `path`; `origin` and `note` become a comment."""

    path: tuple[str, ...]
    value: Any
    origin: str
    note: str = ""


@frozen
class Comment:
    """Keys without counterpart, in the section that `path` leads to."""

    path: tuple[str, ...]
    given: Mapping[str, Any]
    keys: tuple[str, ...]
    note: str
    fate: str


Part = Value | Comment


def render(heading: Sequence[str], parts: Sequence[Part]) -> str:
    """The text of the spec."""
    lines = [line for text in heading for line in _commented(text, "")]
    order = ["apiVersion", *(f.name for f in fields(Spec))]
    lines += ["apiVersion: areal/v1"]
    for section in [*order, None]:
        mine = [part for part in parts if _section(part, order) == section]
        lines += _section_lines(mine, section)
    return "\n".join(lines) + "\n"


def _section(part: Part, order: Sequence[str]) -> str | None:
    return part.path[0] if part.path and part.path[0] in order else None


def _section_lines(parts: Sequence[Part], section: str | None) -> Iterator[str]:
    values = [part for part in parts if isinstance(part, Value)]
    comments = [part for part in parts if isinstance(part, Comment)]
    if any(len(part.path) > 1 or not values for part in parts) or comments:
        yield ""
    yield from _values(values, 0, 0)
    inside = any(len(part.path) > 1 for part in values) and section != "environments"
    together: dict[tuple[str, str], list[str]] = {}
    for comment in comments:
        together.setdefault((comment.fate, comment.note), []).extend(_given(comment))
    for (fate, note), given in together.items():
        sign = {"lost": "LOST ", "unknown": "UNKNOWN "}.get(fate, "")
        yield from _commented(f"{sign}{', '.join(dict.fromkeys(given))} -- {note}", "  " if inside else "")


def _values(parts: Sequence[Value], depth: int, indent: int, dash: bool = False) -> Iterator[str]:
    """The parts, which share their first `depth` keys, as a block mapping or list."""
    keys = list(dict.fromkeys(part.path[depth] for part in parts))
    for position, key in enumerate(keys):
        below = [part for part in parts if part.path[depth] == key]
        lead = " " * indent if not (dash and position == 0) else " " * (indent - 2) + "- "
        if key.isdecimal():
            yield from _values(below, depth + 1, indent + 2, dash=True)
        elif len(below) == 1 and len(below[0].path) == depth + 1:
            yield from _line(below[0], f"{lead}{key}:", indent)
        else:
            yield f"{lead}{key}:"
            leaf = [part for part in below if len(part.path) > depth + 1]
            yield from _values(leaf, depth + 1, indent + 2)


def _line(part: Value, start: str, indent: int) -> Iterator[str]:
    text = f"{start} {scalar(part.value)}"
    note = one_line(part.note)
    whole = f"{text}  # {part.origin}" + (f": {note}" if note else "")
    if len(whole) <= WIDTH:
        yield whole
        return
    pad = " " * indent
    yield f"{text}  # {part.origin}"
    yield from (f"{pad}  # {line}" for line in wrap(note, WIDTH - indent - 4))


def _given(comment: Comment) -> list[str]:
    return [f"{key}: {_short(value)}" for key, value in comment.given.items()] or list(comment.keys)


def _commented(text: str, pad: str) -> Iterator[str]:
    first, *more = wrap(one_line(text), WIDTH - len(pad) - 2, break_long_words=False, break_on_hyphens=False) or [""]
    yield f"{pad}# {first}"
    yield from (f"{pad}#   {line}" for line in more)


def _short(value: Any) -> str:
    text = scalar(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def scalar(value: Any) -> str:
    """A value on one line of YAML 1.2, which is JSON with fewer quotes."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {scalar(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(scalar, value)) + "]"
    if isinstance(value, str) and _is_plain(value):
        return value
    if isinstance(value, float) and not isfinite(value):
        return ".nan" if isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{value:.1f}"
    return _escaped(json.dumps(value, ensure_ascii=False, default=str))


def one_line(text: str) -> str:
    """`text` for a comment or a terminal: no line ends in it, and no control character acts."""
    return _escaped(re.sub(r"\s+", " ", text))


def _is_plain(text: str) -> bool:
    """Whether it needs no quotes: `.inf` and `...` do, and the words that are no texts in YAML 1.1."""
    return bool(_PLAIN.fullmatch(text)) and text.lower() not in _WORDS and text != "..." and load.scalar(text) == text


def _escaped(text: str) -> str:
    """What YAML forbids or folds, as it is written within double quotes."""
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
