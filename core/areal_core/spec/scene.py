"""What cross-field checks look at: one stage's spec, and the components it chose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import frozen

from areal_core.errors import Finding, Severity
from areal_core.spec.model import Spec
from areal_core.spec.node import SpecPath
from areal_core.spec.structure import Part


@frozen(repr=False, eq=False)
class Scene:
    """A stage's spec with its parts; capabilities are None where a component cannot be had."""

    spec: Spec
    parts: Mapping[SpecPath, Part]
    known_axes: frozenset[str] = frozenset({"dp"})

    def part(self, *path: str | int) -> Part | None:
        return self.parts.get(path)

    def capabilities(self, *path: str | int) -> Any:
        part = self.parts.get(path)
        return part.descriptor.capabilities if part and part.descriptor else None

    def name(self, *path: str | int) -> str:
        part = self.parts.get(path)
        return part.name if part else ""

    def environments(self) -> Iterable[tuple[int, Part]]:
        """The environments that can be had, by their place in the list."""
        for index in range(len(self.spec.environments)):
            part = self.parts.get(("environments", index))
            if part is not None and part.descriptor is not None:
                yield index, part


@frozen(repr=False, eq=False)
class Conflict:
    """A finding about several values: reported only when none of them is wrong by itself."""

    finding: Finding
    reads: tuple[SpecPath, ...]


def conflict(
    code: str,
    message: str,
    *paths: str,
    hint: str | None = None,
    severity: Severity = Severity.ERROR,
) -> Conflict:
    """The values at `paths` (dotted) do not go together; the first is pointed at."""
    reads = tuple(_path(path) for path in paths)
    return Conflict(Finding(code, message, reads[0], hint, severity), reads)


def _path(dotted: str) -> SpecPath:
    return tuple(int(part) if part.isdecimal() else part for part in dotted.split("."))
