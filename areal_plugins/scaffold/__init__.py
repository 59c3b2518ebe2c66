"""A new plugin as a project: files from `templates/`, with the names filled in.

`templates/project` is common to all kinds, `templates/KIND` is added to it. A template's path says where its
file goes: `package` stands for the import package, `dot-` for a leading dot. Texts are `string.Template`s.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Template

from areal_core.errors import InputError
from areal_plugins.scaffold.naming import Names, checked

__all__ = ["TEMPLATES", "Names", "checked", "render", "write"]

TEMPLATES = Path(__file__).with_name("templates")

_SUFFIX = ".tmpl"


def write(names: Names, parent: Path) -> list[Path]:
    """Write the project into a new directory below `parent`; the files, in order.

    Raises:
        InputError: the directory exists, or cannot be written.
    """
    folder = parent / names.distribution
    if os.path.lexists(folder):
        raise InputError(str(folder), "exists already", "choose another name, or another place by --dir")
    files = {folder / path: text for path, text in render(names).items()}
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(
            str(folder), f"cannot be written: {error.strerror}", "choose another place by --dir"
        ) from error
    return sorted(files)


def render(names: Names) -> dict[str, str]:
    """The project's files by their paths in it."""
    values = names.values()
    return {
        _place(file.relative_to(root), names): Template(file.read_text(encoding="utf-8")).substitute(values)
        for root in (TEMPLATES / "project", TEMPLATES / names.kind)
        for file in _files(root)
    }


def _files(root: Path) -> Iterator[Path]:
    return (path for path in sorted(root.rglob(f"*{_SUFFIX}")) if path.is_file())


def _place(path: Path, names: Names) -> str:
    parts = path.as_posix().removesuffix(_SUFFIX).split("/")
    return "/".join(_PLACES.get(part, part.replace("dot-", ".", 1)) for part in parts).format(package=names.package)


_PLACES: Mapping[str, str] = {"package": "{package}"}
