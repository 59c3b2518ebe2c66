"""Findings on their way from what is wrong to what a person reads."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from attrs import evolve, field, frozen

from areal_core.errors import Finding, Location, Severity
from areal_core.spec.node import Node, SpecPath


@frozen(repr=False, eq=False)
class Report:
    """Collects findings, so that all of them are reported at once."""

    findings: list[Finding] = field(factory=list)

    def error(
        self,
        code: str,
        message: str,
        path: SpecPath = (),
        hint: str | None = None,
        location: Location | None = None,
    ) -> None:
        """The spec is wrong, whatever the machine."""
        self.findings.append(Finding(code, message, path, hint or None, Severity.ERROR, location))

    def unavailable(
        self,
        code: str,
        message: str,
        path: SpecPath = (),
        hint: str | None = None,
        location: Location | None = None,
    ) -> None:
        """This machine lacks something."""
        self.findings.append(Finding(code, message, path, hint or None, Severity.UNAVAILABLE, location))


def locate(finding: Finding, tree: Node) -> Finding:
    """`finding` with the place its path leads to, or the nearest one that is written."""
    if finding.location is not None:
        return finding
    return evolve(finding, location=_aim(tree, finding.path))


def _aim(tree: Node, path: SpecPath) -> Location:
    node, missing = tree.nearest(path)
    if node is tree:  # nothing on the way is written: the file as a whole
        return Location(tree.source.name, 1, 1)
    bare_name = isinstance(node.value, str) and len(missing) == 1
    return node.location if bare_name or not missing else node.key_location


def tidy(findings: Iterable[Finding]) -> list[Finding]:
    """By file, line and column; what several stages find at one place, once."""
    unique = {(f.code, f.message, str(f.location), f.severity): f for f in findings}
    return sorted(unique.values(), key=_place)


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `name`, if any is like it."""
    from difflib import get_close_matches  # only when something is wrong

    near = get_close_matches(name.lower().replace("-", "_"), list(candidates), n=1, cutoff=0.6)
    return near[0] if near else None


def did_you_mean(name: str, candidates: Sequence[str]) -> str | None:
    """A hint: the nearest candidate, or all of them when they are few."""
    if near := nearest(name, candidates):
        return f"did you mean `{near}`?"
    return f"there are: {', '.join(sorted(candidates))}" if 0 < len(candidates) <= 16 else None


def render(finding: Finding) -> str:
    """The finding as text, with the excerpt and carets under what is meant."""
    location = finding.location
    place, hint = str(location) if location else finding.dotted or "spec", _harmless(finding.hint or "")
    head = _harmless(f"{place}: {finding.severity.value}[{finding.code}]: {finding.message}")
    if location is None or not location.excerpt.strip():
        return f"{head}\n  {hint}" if hint else head
    location = _clipped(location)
    margin = f"{location.line} | "
    pointer = f"{' ' * len(str(location.line))} | {_blank(location)}{_carets(location)}"
    return "\n".join((head, margin + location.excerpt, f"{pointer} {hint}".rstrip()))


def count_line(findings: Sequence[Finding]) -> str:
    """`2 errors, 1 unavailable`."""
    errors = sum(f.severity is Severity.ERROR for f in findings)
    unavailable = len(findings) - errors
    parts = [f"{errors} error{'s' if errors != 1 else ''}"] if errors or not unavailable else []
    return ", ".join(parts + ([f"{unavailable} unavailable"] if unavailable else []))


def _harmless(text: str) -> str:
    """Without the characters that would act on a terminal: a quoted text may hold any."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in text)


def _place(finding: Finding) -> tuple[str, int, int, str, str]:
    place = finding.location or Location("", 0, 0)
    return place.file, place.line, place.column, finding.code, finding.message


def _clipped(location: Location, most: int = 110) -> Location:
    """A long line cut to what surrounds the place."""
    first = max(0, location.column - 1 - most // 2) if len(location.excerpt) > most else 0
    excerpt = _harmless(location.excerpt[first:][:most])
    return evolve(location, excerpt=excerpt, column=location.column - first)


def _blank(location: Location) -> str:
    """White space as wide on a terminal as the text before the column."""
    before = location.excerpt[: location.column - 1]
    return "".join("\t" if c == "\t" else " " * _columns(c) for c in before)


def _carets(location: Location) -> str:
    marked = location.excerpt[location.column - 1 :][: location.width]
    return "^" * max(1, sum(_columns(c) for c in marked))


def _columns(character: str) -> int:
    """Terminal columns of a character: two for wide East Asian ones."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
