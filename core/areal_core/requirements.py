"""Whether a component's PEP 508 requirements are installed, without importing them."""

from __future__ import annotations

from collections.abc import Iterable
from email import message_from_string
from functools import cache
from importlib import metadata


@cache
def unmet(requirement: str) -> str | None:
    """Why `requirement` is not met, in words; None when it is, or when its marker excludes this machine."""
    name, _, floor = requirement.partition(">=")
    if (least := _release(floor)) and name.replace("-", "").replace("_", "").isalnum():
        return _below(name, least, floor)
    return _unmet(requirement)


def _below(name: str, least: tuple[int, ...], floor: str) -> str | None:
    """The common case `name>=1.2` with plain numbers, without the library: most of `check`'s time is start-up."""
    version = _installed(name)
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
    version = _installed(parsed.name)
    if version is None:
        return f"{parsed.name} is not installed"
    if not parsed.specifier.contains(version, prereleases=True):
        return f"{parsed.name} {version} is installed, {parsed.specifier} is needed"
    return None


@cache
def _installed(name: str) -> str | None:
    try:
        return identity(metadata.distribution(name))[1]
    except metadata.PackageNotFoundError:
        return None


def identity(distribution: metadata.Distribution) -> tuple[str, str]:
    """Name and version, from the headers alone: `metadata` parses the description, a whole README, each time."""
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    headers = message_from_string(text.partition("\n\n")[0])
    return headers["Name"], headers["Version"]


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
