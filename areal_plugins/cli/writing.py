"""Files that commands write: whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from areal_core.errors import InputError


def write_whole(file: str, text: str) -> None:
    """Write all of `text` or leave the file as it was.

    Raises:
        InputError: it cannot be written.
    """
    target = Path(os.path.realpath(file))
    try:
        if target.exists() and not target.is_file():  # a device or a pipe is written to, and not replaced
            Path(file).write_text(text, encoding="utf-8")
        else:
            _replace(target, text)
    except OSError as error:
        raise InputError(file, f"cannot be written: {error.strerror}") from None


def _replace(target: Path, text: str) -> None:
    handle, name = tempfile.mkstemp(prefix=".areal-", dir=target.parent)  # new, whatever else lies there
    beside = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        beside.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
