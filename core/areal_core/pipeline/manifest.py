"""Whether a directory is whole: each file's size and checksum, written last and compared when it is read."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from areal_core.errors import CheckpointError

NAME = "manifest.json"
_CHUNK = 1 << 20


def seal(directory: Path) -> None:
    """Have all that is below `directory` on disk, and write down what it is.

    Once this returns a loss of power takes nothing of it away. `sha256sum` gives the same checksums.
    """
    files = {str(path.relative_to(directory)): _settle(path) for path in _files(directory)}
    with (directory / NAME).open("w", encoding="utf-8") as manifest:
        manifest.write(json.dumps({"files": files}, indent=1))
        manifest.flush()
        os.fsync(manifest.fileno())
    below = [path for path in directory.rglob("*") if path.is_dir()]
    for folder in (*sorted(below, reverse=True), directory):
        sync(folder)


def sync(path: Path) -> None:
    """Have on disk what a file holds, or which names there are in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def verify(directory: Path) -> set[str]:
    """Read all of `directory`, and compare; the files by name. Those that were added since are nobody's concern.

    Raises:
        CheckpointError: a file, which it names, is missing or is not what was written.

    """
    files = _read(directory)
    for name, sealed in files.items():
        path = directory / name
        try:
            with path.open("rb") as file:
                same = os.fstat(file.fileno()).st_size == sealed["size"] and _checksum(file) == sealed["sha256"]
        except OSError as error:
            raise CheckpointError(str(path), f"is damaged: {error.strerror}") from error
        if not same:
            raise CheckpointError(str(path), "is damaged: it is not what was written")
    return set(files)


def _read(directory: Path) -> dict[str, dict[str, object]]:
    path = directory / NAME
    try:
        files: dict[str, dict[str, object]] = json.loads(path.read_text(encoding="utf-8"))["files"]
        for sealed in files.values():
            sealed["size"], sealed["sha256"]
    except OSError as error:
        raise CheckpointError(str(path), f"is damaged: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(str(path), f"is damaged: {type(error).__name__}: {error}") from error
    return files


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in sorted(directory.rglob("*")) if path.is_file() and path != directory / NAME)


def _settle(path: Path) -> dict[str, object]:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return {"size": os.fstat(file.fileno()).st_size, "sha256": _checksum(file)}


def _checksum(file: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
