"""Whether a component's PEP 508 requirements are installed, without importing them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from areal_core import installed


@cache
def unmet(requirement: str) -> str | None:
    """Why `requirement` is not met, in words; None when it is, or when its marker excludes this machine."""
    name, _, floor = requirement.partition(">=")
    if (least := _release(floor)) and name.replace("-", "").replace("_", "").isalnum():
        return _below(name, least, floor)
    return _unmet(requirement)


def _below(name: str, least: tuple[int, ...], floor: str) -> str | None:
    """The common case `name>=1.2` with plain numbers, without the library: most of `check`'s time is start-up."""
    version = installed.version(name)
    if version is None:
        return f"{name} is not installed"
    release = _release(version.partition("+")[0])
    if not release:
        return _unmet(f"{name}>={floor}")
    width = max(len(release), len(least))
    enough = _padded(release, width) >= _padded(least, width)
    return None if enough else f"{name} {version} is installed, >={floor} is needed"


def _unmet(requirement: str) -> str | None:
    from packaging.requirements import Requirement

    parsed = Requirement(requirement)
    if parsed.marker is not None and not parsed.marker.evaluate():
        return None
    version = installed.version(parsed.name)
    if version is None:
        return f"{parsed.name} is not installed"
    if not parsed.specifier.contains(version, prereleases=True):
        return f"{parsed.name} {version} is installed, {parsed.specifier} is needed"
    return None


def _release(version: str) -> tuple[int, ...]:
    """The numbers of `1.2.3`; empty for anything that is more than numbers."""
    parts = version.strip().split(".")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else ()


def _padded(release: tuple[int, ...], width: int) -> tuple[int, ...]:
    return release + (0,) * (width - len(release))


def unmet_requirements(requirements: Iterable[str]) -> tuple[str, ...]:
    """The reasons of those that are not met."""
    return tuple(reason for requirement in requirements if (reason := unmet(requirement)))


def pip_line(requirements: Iterable[str]) -> str:
    """The command that installs them."""
    return "pip install " + " ".join(f"'{r}'" if set(r) & set("<>=;[ ") else r for r in requirements)
