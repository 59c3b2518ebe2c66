"""Writes the tables of `docs/spec.md` from the code they describe: `python docs/reference.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import NOTHING, Factory, fields, has

from areal_core.spec import forms, model
from areal_core.spec.sections import PRIVATE

PAGE = Path(__file__).with_name("spec.md")
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def tables(page: str) -> str:
    """The page with what stands between `<!-- table: NAME -->` and `<!-- end -->` made anew."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)",
        lambda match: match[1] + "\n".join(table(match[2])) + "\n" + match[3],
        page,
        flags=re.DOTALL,
    )


def table(name: str) -> Iterator[str]:
    """The rows of a class's keys."""
    cls = getattr(model, name)
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for f in fields(cls):
        if f.name not in PRIVATE and f.name != "overrides":
            value = escaped(words(f, forms.hints(cls)[f.name]))
            yield f"| `{f.name}` | {value} | {default(f)} | {escaped(f.metadata.get('doc', ''))} |"


def words(f: Any, form: Any) -> str:
    """The type and its bounds."""
    bounds = [f"{text} {f.metadata[key]:g}" for key, text in BOUNDS.items() if key in f.metadata]
    return ", ".join([forms.describe(form), *bounds])


def default(f: Any) -> str:
    """The default as YAML; a dash where the key must be given, or is a section of its own."""
    value = f.default.factory() if isinstance(f.default, Factory) else f.default
    if value is NOTHING or has(type(value)):
        return "-"
    if isinstance(value, tuple):
        return f"`[{', '.join(item.type for item in value)}]`"
    spelled = {None: "null", True: "true", False: "false"}
    return f"`{spelled[value] if value is None or isinstance(value, bool) else value}`"


def escaped(text: str) -> str:
    """Text that may stand in a table's cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(tables(PAGE.read_text()))
