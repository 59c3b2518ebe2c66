"""The part of an answer that is the answer. Every extractor is linear in the text's length."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

_NUMBER = re.compile(r"(?:(?<!\w)(?<!\.)-)?(?<![\w.])(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)|\d+|(?=\.\d))(?:\.\d+)?")
_MINUS = str.maketrans({"\N{MINUS SIGN}": "-"})
_BOX = "\\boxed{"


def whole(text: str) -> str:
    """All of it, without white space at its ends."""
    return text.strip()


def last_line(text: str) -> str | None:
    """The last line that is not blank."""
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else None


def last_number(text: str) -> str | None:
    """The last decimal number, as `-1234.5`: thousands separators are left out."""
    found = _NUMBER.findall(text.translate(_MINUS))
    return found[-1].replace(",", "") if found else None


def boxed(text: str) -> str | None:
    r"""What the last `\boxed{...}` holds, braces matched."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    depth, inside = 1, text[start + len(_BOX) :]
    for position, letter in enumerate(inside):
        depth += (letter == "{") - (letter == "}")
        if depth == 0:
            return inside[:position].strip()
    return None


def after_hashes(text: str) -> str | None:
    """The rest of the line after the last `####`, as GSM8K marks its answers."""
    _, marker, rest = text.rpartition("####")
    return rest.strip().partition("\n")[0].strip() if marker else None


def answer_tag(text: str) -> str | None:
    """What the last `<answer>...</answer>` holds."""
    before, closed, _ = text.rpartition("</answer>")
    _, opened, inside = before.rpartition("<answer>")
    return inside.strip() if closed and opened else None


def number(text: str) -> Decimal | None:
    """The number that `text` is, or None when it is anything else; `$1,000.0` is 1000, `5%` is 5."""
    bare = text.translate(_MINUS).strip().removesuffix(".").strip("$% ").strip()
    return Decimal(bare.replace(",", "")) if _NUMBER.fullmatch(bare) else None


EXTRACTORS: Mapping[str, Callable[[str], str | None]] = {
    "whole": whole,
    "last-line": last_line,
    "last-number": last_number,
    "boxed": boxed,
    "after-hashes": after_hashes,
    "answer-tag": answer_tag,
}
