"""Files of a run that hold JSON objects, one a line: written as it goes on, cut when it goes back, and read again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from areal_core.errors import InputError
from areal_core.pipeline.growing import Growing

T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


class _Stepped(msgspec.Struct):
    """The one part of a line that says whether it is cut."""

    step: int


_stepped = msgspec.json.Decoder(_Stepped).decode


class Lines:
    """A file of JSON objects, one a line, each written as soon as it is added, or as soon as there is room for it.

    Floats keep every bit; what is not finite becomes null.
    """

    def __init__(self, path: Path, step: int | None = None) -> None:
        """Continue `path`; forget a line that is not whole, and with `step` the lines after it."""
        self.path = path
        self._file = Growing(path)
        self.rewind(step)

    def add(self, line: Mapping[str, Any]) -> None:
        """One line."""
        self.extend([line])

    def extend(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Several lines. Raises `OSError` once too many wait for room."""
        self._file.add(b"".join(_encode(line) + b"\n" for line in lines))

    def rewind(self, step: int | None) -> None:
        """Forget the lines after `step`, and one that is not whole."""
        self._file.cut(lambda content: _end(content, step, self.path))

    def sync(self) -> None:
        """Have on disk what was added, or raise `OSError`. Blocks."""
        self._file.sync()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read(path: Path, decode: Callable[[Any], T]) -> Iterator[T]:
    """What `decode` makes of each line of a run's file; one that is not whole is being written, or was broken off.

    Raises:
        InputError: a line is no JSON, or `decode` finds something else in it than it must hold.

    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                found = decode(json.loads(line))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise _damaged(path, number, error) from error
            yield found


def _damaged(path: Path, number: int, error: Exception) -> InputError:
    """The error for line `number`, which somebody else must have written."""
    problem = f"is damaged: {type(error).__name__}: {error}"
    return InputError(f"{path}:{number}", problem, "remove the line, or give the file its old content")


def _end(content: bytes, step: int | None, path: Path) -> int:
    """Where the last whole line ends whose step is at most `step`, if given; steps never decrease.

    Lines end at b"\\n" alone: texts may hold whatever else Unicode takes for a line's end.
    """
    whole = content.rfind(b"\n") + 1
    if step is None:
        return whole
    end = 0
    for number, line in enumerate(io.BytesIO(content[:whole]), 1):
        try:
            later = _stepped(line).step > step
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _damaged(path, number, error) from error
        if later:
            break
        end += len(line)
    return end
