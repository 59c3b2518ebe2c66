"""The private spec keys of the rewards. Light: attrs alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

from attrs import Attribute, field, frozen

Extract = Literal["whole", "last-line", "last-number", "boxed", "after-hashes", "answer-tag"]

_EXTRACT = "The part of the answer that counts; where there is none, the answer is wrong."


def _doc(text: str, default: Any, *, validator: Any = None, **limits: Any) -> Any:
    return field(default=default, validator=validator, metadata={"doc": text, **limits})


def _compiles(_: object, attribute: Attribute[str], value: str) -> None:
    try:
        re.compile(value)
    except re.error as error:
        raise ValueError(f"{attribute.name} is no regular expression: {error}") from None


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class ExactOptions:
    """Options of `exact`."""

    extract: Extract = _doc(_EXTRACT, "whole")
    casefold: bool = _doc("Upper and lower case are the same.", False)
    number: bool = _doc("Compare as decimal numbers, so that `1,000` is `1000.0`.", False)


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class RegexOptions:
    """Options of `regex`. The pattern runs on the worker's loop: keep it free of nested repetition."""

    pattern: str = field(validator=_compiles, metadata={"doc": "Python regular expression; `.` matches a line's end."})
    whole: bool = _doc("It must match the whole answer, not a part of it.", False)
    compare: bool = _doc("Its first group (or all it matched) must equal the task's answer.", False)
    casefold: bool = _doc("Upper and lower case are the same.", False)


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class FormatOptions:
    """Options of `format`."""

    tags: tuple[str, ...] = _doc("Elements that make up the answer, each once, in this order.", ("think", "answer"))


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class LengthOptions:
    """Options of `length`."""

    unit: Literal["characters", "words"] = _doc("What is counted.", "characters")
    at_least: int = _doc("Shorter answers lose.", 0, ge=0)
    at_most: int | None = _doc("Longer answers lose; null is no limit.", None, ge=0)
    margin: int = _doc("How far beyond a limit the score falls from 1 to 0, linearly; 0 is at once.", 0, ge=0)


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class FunctionOptions:
    """Options of `function`."""

    path: str = field(metadata={"doc": "`package.module:function`, or `./file.py:function`.", "path": "maybe"})
    arguments: Mapping[str, Any] = field(factory=dict, metadata={"doc": "Keyword arguments of every call."})
    timeout: float | None = _doc(
        "Seconds one call may take; it then runs in a process of its own, which is killed.", None, gt=0
    )
    workers: int = _doc("Such processes, at most.", 2, ge=1)


@frozen(kw_only=True, repr=False, unsafe_hash=False)
class MathOptions:
    """Options of `math`."""

    extract: Literal["auto"] | Extract = _doc(
        f"{_EXTRACT} `auto` leaves it to math-verify: the last boxed, else the last mathematical expression.", "auto"
    )
    timeout: float = _doc("Seconds one verification may take before its process is killed.", 5.0, gt=0)
    memory_mib: int = _doc("Address space of a verifying process.", 2048, ge=256)
    on_timeout: Literal["zero", "error"] = _doc(
        "A verification without a verdict (too long, too much memory) is a wrong answer that its part `unverified` "
        "shows, or an error that is retried and in the end fails the run.",
        "zero",
    )
    workers: int = _doc("Verifying processes, at most.", 2, ge=1)
