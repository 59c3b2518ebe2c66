"""What someone who wrote a key that does not exist, or a value of another type, may have meant."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from attrs import fields, has

from areal_core.spec import forms
from areal_core.spec.findings import did_you_mean, nearest
from areal_core.spec.model import Spec
from areal_core.spec.node import SpecPath
from areal_core.spec.sections import PRIVATE, section_at


def unknown_key_hint(key: str, valid: Sequence[str], path: SpecPath = ()) -> str | None:
    """The nearest valid key here; else the same key where it belongs; else what is valid here."""
    if strange := next((c for c in key if not c.isascii()), None):
        return _strange_hint(key, strange, valid)
    section = section_at(path)
    if section and key in ("type", "backend", "name"):
        return f"did you mean `{section.selector}`?"
    if near := nearest(key, valid):
        return f"did you mean `{near}`?"
    elsewhere = [dotted for dotted in _all_keys() if dotted.rpartition(".")[2] == key]
    if elsewhere:
        return f"did you mean `{elsewhere[0]}`?"
    return did_you_mean(key, valid)


def _strange_hint(key: str, strange: str, valid: Sequence[str]) -> str:
    """Characters that look like others, or cannot be seen."""
    named = f"it holds {unicodedata.name(strange, 'a character')}, U+{ord(strange):04X}"
    near = nearest("".join(c for c in key if c.isprintable()), valid)
    return f"{named}; did you mean `{near}`?" if near else named


@cache
def _all_keys() -> list[str]:
    """Every key of the spec, dotted, in order."""
    return list(_keys(Spec, ""))


def _keys(cls: Any, prefix: str) -> Iterator[str]:
    for f in fields(cls):
        if f.name in PRIVATE:
            continue
        yield prefix + f.name
        form = forms.hints(cls)[f.name]
        for member in (form, *forms.members(form)):
            if has(member):
                yield from _keys(member, f"{prefix}{f.name}.")


def type_hint(data: Any, form: Any, doc: str) -> str | None:
    """The way from what was written to what was meant, where it is plain."""
    wanted = forms.shapes(form)
    if isinstance(data, str) and set(wanted) & {"int", "float", "bool"}:
        return _scalar_hint(data.strip(), wanted, doc)
    if "list" in wanted and not isinstance(data, list):
        return "write a list: [...], or lines that start with `- `"
    if "text" in wanted and "list" not in wanted and isinstance(data, bool | int | float):
        return "quote it"
    if data is None:
        return "remove the key to take the default" if "map" in wanted else "remove the key, or give it a value"
    return None


def _scalar_hint(text: str, wanted: Sequence[str], doc: str) -> str | None:
    """A number or a truth that was written as a text; `doc` says what the number counts."""
    if text.lower() in ("true", "false") or _numeric(text):
        return "remove the quotes"
    if "bool" in wanted:
        return _TRUTHS.get(text.lower())
    if text[:1].isdecimal():
        return f"write the number alone: {doc}" if doc else "write the number alone"
    return None


_TRUTHS = dict.fromkeys(("yes", "on", "y"), "write true") | dict.fromkeys(("no", "off", "n"), "write false")
"""YAML 1.1 read these as truth values; YAML 1.2 reads texts."""


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
