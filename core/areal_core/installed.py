"""Installed distributions and their entry points, as pip writes them down beside the packages.

`importlib.metadata` knows the same and more, but to import it costs a fifth of all that `check` does.
What lies in a zip file is not looked at, and what is installed later not seen by this process.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from areal_core.importing import import_object

_FOLDERS = (".dist-info", ".egg-info")


class Distribution(NamedTuple):
    """What is installed; `folder` holds its metadata."""

    name: str
    version: str
    folder: Path


class EntryPoint(NamedTuple):
    """One line `name = value` of a distribution, where `value` is `module` or `module:object`."""

    name: str
    value: str
    distribution: Distribution

    def load(self) -> Any:
        """Import what it points to; raises whatever the import does."""
        name = self.value.partition("[")[0].replace(" ", "")
        return import_object(name) if ":" in name else import_module(name)


def version(name: str) -> str | None:
    """The installed version of the distribution `name`; None when it is not installed."""
    folder = _folders(tuple(sys.path)).get(_normal(name))
    return None if folder is None else _described(folder).version or None  # "": pip was broken off


def entry_points(group: str) -> Iterator[EntryPoint]:
    """The entry points of a group, by name."""
    found = (entry for folder in _folders(tuple(sys.path)).values() for entry in _listed(folder, group))
    return iter(sorted(found, key=lambda entry: entry.name))


@cache
def _folders(path: tuple[str, ...]) -> Mapping[str, Path]:
    """The metadata folder of each distribution by its normalized name; the first on the path counts, as for imports."""
    found: dict[str, Path] = {}
    for directory in path:
        for folder in _entries(directory or "."):
            if folder.name.endswith(_FOLDERS) and not folder.name.startswith("~"):  # ~: pip could not remove it
                distribution = re.split(r"-|\.(?:dist|egg)-info$", folder.name, maxsplit=1)[0]
                found.setdefault(_normal(distribution), Path(folder.path))
    return found


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:
        return []


def _listed(folder: Path, group: str) -> Iterator[EntryPoint]:
    lines = _text(folder / "entry_points.txt").splitlines()
    section = ""
    for line in map(str.strip, lines):
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == group and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield EntryPoint(name.strip(), value.strip(), _described(folder))


@cache
def _described(folder: Path) -> Distribution:
    """Name and version by the headers of the metadata; of old tools' single file, the file itself."""
    files = (folder / "METADATA", folder / "PKG-INFO", folder)
    headers = next(filter(None, map(_text, files)), "").partition("\n\n")[0]
    fields = dict(re.findall(r"^(Name|Version): *(.*?) *$", headers, re.MULTILINE))
    return Distribution(fields.get("Name", ""), fields.get("Version", ""), folder)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _normal(name: str) -> str:
    """As PEP 503 compares names."""
    return re.sub(r"[-_.]+", "-", name).lower()
