"""What a verifying process runs: math-verify without its own time-outs, which C code ignores."""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

from math_verify import parse  # type: ignore[import-untyped]
from math_verify import verify as equal

logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that we do without its time-outs

_MARKS = ("$", "\\boxed", "\\(", "\\[", "\\begin")


def verify(gold: str, answer: str, whole: bool) -> bool:
    """Whether `answer` equals `gold`. `whole`: all of `answer` is the expression, not a text that holds it.

    Raises:
        ValueError: `gold` cannot be read as mathematics.

    """
    wanted = _gold(gold)
    found = parse(_marked(answer) if whole else answer, parsing_timeout=None)
    return bool(equal(wanted, found, timeout_seconds=None))


@lru_cache(maxsize=256)
def _gold(text: str) -> list[Any]:
    parsed: list[Any] = parse(_marked(text), parsing_timeout=None)
    if not parsed:
        raise ValueError(f"the task's answer {text!r} cannot be read as mathematics")
    return parsed


def _marked(text: str) -> str:
    """`text` as LaTeX that math-verify recognizes as such."""
    return text if any(mark in text for mark in _MARKS) else f"${text}$"
