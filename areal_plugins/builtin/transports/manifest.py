"""What a published directory holds: each file's size and checksum, in a file of its own."""

from __future__ import annotations

import json
import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from attrs import frozen

from areal_plugins.builtin.transports.checksum import checksum

FILE = "checksums.json"


@frozen
class Entry:
    """A file of the directory."""

    size: int
    checksum: int


def write_manifest(directory: Path) -> int:
    """List all files below `directory` in `checksums.json`; that file's own checksum."""
    entries = {str(file.relative_to(directory)): _entry(file) for file in _files(directory)}
    listed = {name: [entry.size, entry.checksum] for name, entry in entries.items()}
    text = json.dumps(listed, indent=1, sort_keys=True).encode()
    (directory / FILE).write_bytes(text)
    return _checksum(text)


def read_manifest(directory: Path, expected: int) -> dict[str, Entry]:
    """The listed files.

    Raises:
        FileNotFoundError: there is no list. ValueError: it is another one than was published.

    """
    text = (directory / FILE).read_bytes()
    if _checksum(text) != expected:
        raise ValueError(f"{directory / FILE} is not the one that was published")
    return {name: Entry(*entry) for name, entry in json.loads(text).items()}


def problems(directory: Path, entries: dict[str, Entry], verify: bool) -> Iterator[str]:
    """Files that are missing or truncated, and with `verify` those whose bytes differ."""
    for name, entry in entries.items():
        file = directory / name
        if not file.is_file():
            yield f"{file} is missing"
        elif (size := file.stat().st_size) != entry.size:
            yield f"{file} holds {size} of {entry.size} bytes"
        elif verify and _entry(file) != entry:
            yield f"{file} is damaged (checksums differ)"


def _files(directory: Path) -> list[Path]:
    return sorted(file for file in directory.rglob("*") if file.is_file() and file != directory / FILE)


def _entry(file: Path) -> Entry:
    size = file.stat().st_size
    if size == 0:  # nothing to map
        return Entry(0, _checksum(b""))
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return Entry(size, _checksum(mapped))


def _checksum(data: bytes | mmap.mmap) -> int:
    return checksum(np.frombuffer(data, dtype=np.uint8))
