"""Paths as a spec writes them. Any text is answered: pathlib raises on some that name no file."""

from __future__ import annotations

import os.path
from pathlib import Path


def absolute(directory: Path, text: str) -> str:
    """`text` seen from `directory`, `~` replaced and `..` resolved by name."""
    return os.path.normpath(directory / os.path.expanduser(text))  # noqa: PTH111 (leaves an unknown `~user` as it is)


def real(path: str) -> str:
    """The path without links; as it is where it can name no file."""
    try:
        return os.path.realpath(path)
    except ValueError:
        return path


def exists(path: str) -> bool:
    """Whether there is such a file or directory."""
    return os.path.exists(path)  # noqa: PTH110 (False where the text is no path at all)


def is_file(path: str) -> bool:
    """Whether there is such a file."""
    return os.path.isfile(path)  # noqa: PTH113 (as above)
