"""Applies a table to a config: every key of theirs ends up in the spec, or as a comment in it."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

from attrs import evolve, frozen

from areal_core.spec.findings import nearest
from areal_core.spec.secrets import without_secrets
from areal_plugins.convert.render import Comment, Value, render
from areal_plugins.convert.table import Framework, Lost, Needless, Noted, Partly, Rule
from areal_plugins.convert.theirs import Theirs

Fate = Literal["carried", "default", "lost", "needless", "unknown"]


@frozen
class Entry:
    """What became of some keys: `values` as they were given, `to` the place here and `value` what stands there.

    `default`: the file is silent, and the framework's own default was written down.
    """

    fate: Fate
    keys: tuple[str, ...]
    to: str
    value: Any = None
    note: str = ""
    line: int | None = None
    given: Mapping[str, Any] = {}

    def as_data(self) -> dict[str, Any]:
        """The entry for JSON."""
        data: dict[str, Any] = {"keys": list(self.keys), "line": self.line, "to": self.to, "note": self.note}
        return data | ({"value": self.value} if self.fate in ("carried", "default") else {"given": dict(self.given)})


@frozen
class Conversion:
    """The spec as text, and what became of each key."""

    text: str
    entries: tuple[Entry, ...]

    def of(self, fate: Fate) -> tuple[Entry, ...]:
        """The entries of one fate, in the order of the table."""
        return tuple(entry for entry in self.entries if entry.fate == fate)

    def as_data(self) -> dict[str, Any]:
        """Everything for JSON."""
        fates: tuple[Fate, ...] = ("carried", "default", "lost", "needless", "unknown")
        return {"spec": self.text, **{fate: [entry.as_data() for entry in self.of(fate)] for fate in fates}}


def apply(framework: Framework, theirs: Theirs, file: str) -> Conversion:
    """The spec and the report."""
    entries = [entry for rule in framework.rules if not rule.is_pattern for entry in _entry_of(rule, theirs)]
    met = {key for entry in entries for key in entry.keys}
    for rule in framework.rules:
        if rule.is_pattern:
            more = [_entry_below(rule, key, theirs) for key in theirs.values if key not in met and _fits(key, rule)]
            met.update(key for entry in more for key in entry.keys)
            entries += more
    entries += [_unknown(key, framework, theirs) for key in theirs.values if key not in met]
    entries += [Entry("needless", (word,), "", note="no override") for word in theirs.words]
    parts = [_part(entry, framework) for entry in entries]
    heading = [
        f"Converted from {file}: {framework.title}.",
        "Behind each value stands the key it comes from. What has no counterpart is a comment where it would belong.",
    ]
    return Conversion(render(heading, parts), tuple(entries))


def _entry_of(rule: Rule, theirs: Theirs) -> list[Entry]:
    """What the rule makes, where one of its keys is written or has a default."""
    written = tuple(key for key in rule.keys if key in theirs)
    if not written and not any(key in theirs.defaults for key in rule.keys):
        return []
    made = _made(rule, theirs)
    if isinstance(made, Partly):
        return [_entry(rule, written, made.value, theirs), _entry(rule, written, Lost(made.lost), theirs)]
    nothing = isinstance(made, Needless) and not written
    return [] if nothing else [_entry(rule, written, made, theirs)]


def _made(rule: Rule, theirs: Theirs) -> Any:
    """What the rule makes; a value of a kind that it cannot reckon with is lost, not all of the config."""
    try:
        return rule.make(theirs)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return Lost("cannot be worked out from what is written: our default holds")


def _fits(key: str, rule: Rule) -> bool:
    return fnmatchcase(key, rule.keys[0])


def _entry_below(rule: Rule, key: str, theirs: Theirs) -> Entry:
    """What the rule makes of one of the keys that fit its pattern."""
    alone = evolve(theirs, values={rule.keys[0]: theirs.values[key]})
    return _entry(rule, (key,), _made(rule, alone), theirs)


def _entry(rule: Rule, keys: tuple[str, ...], made: Any, theirs: Theirs) -> Entry:
    line = theirs.lines.get(keys[0]) if keys else None
    given = {key: without_secrets(theirs.values[key], key.rpartition(".")[2]) for key in keys}
    shown = keys or tuple(key for key in rule.keys if key in theirs.defaults)
    if isinstance(made, Lost | Needless):
        fate: Fate = "lost" if isinstance(made, Lost) else "needless"
        if not keys:
            given = {key: theirs.defaults[key] for key in shown}
        return Entry(fate, shown, rule.to, None, made.why, line, given)
    value, note = (made.value, made.note) if isinstance(made, Noted) else (made, "")
    return Entry("carried" if keys else "default", shown, rule.to, value, note, line, given)


def _unknown(key: str, framework: Framework, theirs: Theirs) -> Entry:
    known = [name for rule in framework.rules for name in rule.keys if "*" not in name]
    last = key.rpartition(".")[2]
    near = nearest(key, known) or nearest(last, [name.rpartition(".")[2] for name in known])
    suggestion = f"did you mean `{near}`?" if near and near not in (key, last) else ""
    note = " ".join(filter(None, [f"no key of {framework.name} that is known here;", suggestion])).rstrip("; ")
    given = {key: without_secrets(theirs.values[key], last)}
    return Entry("unknown", (key,), "", None, note, theirs.lines[key], given)


def _part(entry: Entry, framework: Framework) -> Value | Comment:
    if entry.fate in ("carried", "default"):
        from_key = ", ".join(entry.keys) if entry.fate == "carried" else f"default of {framework.name}"
        return Value(tuple(entry.to.split(".")), entry.value, from_key, entry.note)
    return Comment(
        tuple(entry.to.split(".")) if entry.to else (), dict(entry.given), entry.keys, entry.note, entry.fate
    )
