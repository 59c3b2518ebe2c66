"""Writes the tables of `docs/convert.md` from the tables they describe: `python docs/conversions.py`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from areal_plugins.convert import framework
from areal_plugins.convert.table import Rule

PAGE = Path(__file__).with_name("convert.md")


def tables(page: str) -> str:
    """The page with what stands between its `<!-- mapped: NAME -->` or `<!-- comments: NAME -->` and the end anew."""
    return re.sub(
        r"(<!-- (mapped|comments): (\w+) -->\n).*?(<!-- end -->)",
        lambda match: match[1] + "\n".join(table(match[2], match[3])) + "\n" + match[4],
        page,
        flags=re.DOTALL,
    )


def table(what: str, name: str) -> Iterator[str]:
    """The rows of the keys that become values, or of those that become comments."""
    rules = framework(name).rules
    if what == "mapped":
        yield from ("| theirs | ours | |", "|---|---|---|")
        for rule in rules:
            if not rule.comment:
                yield f"| {', '.join(f'`{key}`' for key in rule.keys)} | `{ours(rule)}` | {escaped(rule.meaning)} |"
        return
    yield from ("| theirs | why |", "|---|---|")
    together: dict[str, list[str]] = {}
    for rule in rules:
        if rule.comment:
            together.setdefault(rule.meaning, []).append(rule.keys[0])
    for why, keys in together.items():
        yield f"| {', '.join(f'`{key}`' for key in keys)} | {escaped(why)} |"


def ours(rule: Rule) -> str:
    """Our path as a person writes it."""
    return rule.to.replace("environments.0.", "environments[].")


def escaped(text: str) -> str:
    """Text that may stand in a table's cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(tables(PAGE.read_text()))
