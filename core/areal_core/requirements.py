"""Whether a component's PEP 508 requirements are installed, without importing them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import metadata


@cache
def unmet(requirement: str) -> str | None:
    """Why `requirement` is not met, in words; None when it is, or when its marker excludes this machine."""
    from packaging.requirements import Requirement

    parsed = Requirement(requirement)
    if parsed.marker is not None and not parsed.marker.evaluate():
        return None
    try:
        version = metadata.version(parsed.name)
    except metadata.PackageNotFoundError:
        return f"{parsed.name} is not installed"
    if not parsed.specifier.contains(version, prereleases=True):
        return f"{parsed.name} {version} is installed, {parsed.specifier} is needed"
    return None


def unmet_requirements(requirements: Iterable[str]) -> tuple[str, ...]:
    """The reasons of those that are not met."""
    return tuple(reason for requirement in requirements if (reason := unmet(requirement)))


def pip_line(requirements: Iterable[str]) -> str:
    """The command that installs them."""
    return "pip install " + " ".join(f"'{r}'" if set(r) & set("<>=;[ ") else r for r in requirements)
