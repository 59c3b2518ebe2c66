"""What a table of a framework is made of: one rule a key, or a few keys that mean one thing here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from areal_plugins.convert.theirs import Theirs


@frozen
class Lost:
    """There is no counterpart: `why`, and what happens here instead."""

    why: str


@frozen
class Needless:
    """Nothing has to be carried over: `why`."""

    why: str


@frozen
class Noted:
    """A value here, with something to know about it."""

    value: Any
    note: str


@frozen
class Partly:
    """A value here, and what of theirs it cannot say."""

    value: Any
    lost: str


Make = Callable[[Theirs], Any]
"""What stands here for their values: a plain value, `Noted`, `Partly`, `Lost` or `Needless`."""


@frozen
class Rule:
    """`keys` of theirs become the value that `make` gives, at `to` here, or a comment in the section `to`.

    A key may end in `.*`: everything below it. `meaning` is for the documentation.
    """

    keys: tuple[str, ...]
    to: str
    make: Make
    meaning: str = ""
    comment: bool = False
    """Whether it only ever makes a comment."""

    @property
    def is_pattern(self) -> bool:
        """Whether it is about everything below its key."""
        return "*" in self.keys[0]


@frozen
class Framework:
    """A table: `title` names what is read, `defaults` are theirs, of keys that a rule reads."""

    name: str
    title: str
    source: str
    rules: tuple[Rule, ...]
    defaults: Mapping[str, Any] = field(factory=dict)


def carry(key: str, to: str, value: Callable[[Any], Any] | None = None, meaning: str = "") -> Rule:
    """Their value, or what `value` makes of it. A null of theirs that has no default leaves ours."""

    def make(theirs: Theirs) -> Any:
        given = theirs[key]
        if given is None:
            return Needless("not set there; our default holds")
        return value(given) if value else given

    return Rule((key,), to, make, meaning)


def derive(keys: Sequence[str], to: str, make: Make, meaning: str) -> Rule:
    """Several keys that mean one thing here."""
    return Rule(tuple(keys), to, make, meaning)


def lose(key: str, near: str, why: str, *, off: Sequence[Any] = ()) -> Rule:
    """No counterpart; nothing is lost where the value is null, false, empty or one of `off`."""

    def make(theirs: Theirs) -> Any:
        value = theirs[key]
        is_off = value is None or value is False or value in ("", [], {}) or any(_same(value, one) for one in off)
        return Needless("off, or as it is here") if is_off else Lost(why)

    return Rule((key,), near, make, why, comment=True)


def drop(key: str, near: str, why: str) -> Rule:
    """Nothing to carry over, whatever the value."""
    return Rule((key,), near, lambda _: Needless(why), why, comment=True)


def choice(words: Mapping[Any, Any], otherwise: str) -> Callable[[Any], Any]:
    """A translation of words; `otherwise` says what happens to those that have no counterpart."""

    def value(given: Any) -> Any:
        for word, ours in words.items():
            if _same(given, word):
                return ours
        return Lost(f"{given!r} has no counterpart; {otherwise}")

    return value


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)
