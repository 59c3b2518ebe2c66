"""How full this machine's main memory is, as far as this process may use it."""

from __future__ import annotations

from pathlib import Path

SYSTEM, GROUP = Path("/proc"), Path("/sys/fs/cgroup")


def share(system: Path = SYSTEM, group: Path = GROUP) -> float | None:
    """The share in use of the memory that is left to this process: the machine's, or its control group's if that is
    fuller. None where the system does not say.

    Caches of files do not count: the kernel gives them back before it kills anyone.
    """
    shares = [found for found in (_machine(system), _group(group)) if found is not None]
    return max(shares, default=None)


def _machine(system: Path) -> float | None:
    figures = _table(system / "meminfo")
    if not {"MemTotal:", "MemAvailable:"} <= figures.keys():
        return None
    return 1.0 - figures["MemAvailable:"] / figures["MemTotal:"]


def _group(group: Path) -> float | None:
    """Of control groups of version 2, as a container sees its own."""
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if not limit or used is None:
        return None
    return max(0, used - _table(group / "memory.stat").get("inactive_file", 0)) / limit


def _table(file: Path) -> dict[str, int]:
    words = [line.split() for line in _text(file).splitlines()]
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _number(file: Path) -> int | None:
    text = _text(file).strip()
    return int(text) if text.isdigit() else None


def _text(file: Path) -> str:
    """What it holds; nothing where the system has no such file."""
    try:
        return file.read_text(encoding="ascii")
    except OSError:
        return ""
