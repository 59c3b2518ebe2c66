"""The columns of one trajectory: arrays by name, and on a wire one piece of bytes.

A batch is tens of trajectories of four short columns each, and an array costs a process far more than its bytes to
encode or decode. So they cross together, the controller passes them on as they came, and an array is made of
them where somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception by its usual case

import numpy as np

ALIGN = 8
"""Every array begins at a multiple of so many bytes of a message's body."""
PADS = tuple(bytes(n) for n in range(ALIGN))
COPY_BELOW = 1 << 14
"""Entries from which an array is sent without being copied, and columns cross as arrays of their own."""
DTYPES = tuple(np.dtype(char).newbyteorder("<") for char in "?bBhHiIqQefdFD")
"""What can cross. Their order is part of the protocol."""

_PLACE = Struct("<QQ")
_BY_NAME = {dtype.str: dtype for dtype in DTYPES}

Layout = tuple[tuple[str, np.dtype], ...]


class Columns(MutableMapping[str, np.ndarray]):
    """Used like a dict. What came over a wire is writable and keeps the message alive that brought it."""

    __slots__ = ("_arrays", "_body", "_layout", "_start", "_units")

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._arrays = dict(arrays)
        self._layout: bytes | None = None
        self._body = memoryview(b"")
        self._start = self._units = 0

    @property
    def units(self) -> int:
        """Entries of each column."""
        if self._layout is None:
            return len(next(iter(self._arrays.values()), ()))
        return self._units

    def pack(self, offset: int) -> tuple[bytes, bytes | memoryview] | None:
        """What tells how to read them from `offset` of a message's body, and the bytes to put there.

        None where there are none, one is not a number a unit, or they are long: those cross as arrays of their own.
        """
        if self._layout is None:
            return self._encode(offset) if self._arrays else None
        size = _size(self._layout, self._units)
        return _PLACE.pack(offset, self._units) + self._layout, self._body[self._start : self._start + size]

    @classmethod
    def unpack(cls, told: memoryview, body: memoryview) -> Columns:
        """What `pack` was called on; raises `ValueError` where that cannot be."""
        try:
            start, units = _PLACE.unpack_from(told)
            layout = bytes(told[_PLACE.size :])
            end = start + _size(layout, units)
        except (StructError, KeyError, ValueError) as error:
            raise ValueError(f"malformed columns: {error!r}") from error
        if end > len(body):
            raise ValueError(f"malformed columns: they end at {end} of {len(body)} bytes")
        made = cls({})
        made._layout, made._body, made._start, made._units = layout, body, start, units
        return made

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._arrays and self._layout is not None:
            self._arrays[name] = self._view(name)
        return self._arrays[name]

    def __setitem__(self, name: str, column: np.ndarray) -> None:
        self._unfold()
        self._arrays[name] = column

    def __delitem__(self, name: str) -> None:
        self._unfold()
        del self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays) if self._layout is None else (name for name, _ in _columns(self._layout))

    def __len__(self) -> int:
        return len(self._arrays) if self._layout is None else len(_columns(self._layout))

    def __contains__(self, name: object) -> bool:
        return name in self._arrays or (self._layout is not None and any(name == own for own in self))

    def __reduce__(self) -> tuple[type[Columns], tuple[dict[str, np.ndarray]]]:
        return Columns, (dict(self),)

    def __repr__(self) -> str:
        return f"Columns({dict(self)!r})"

    def _encode(self, offset: int) -> tuple[bytes, bytes] | None:
        units = self.units
        shape, names, parts = (units,), [], []
        for name, array in self._arrays.items():
            kind = array.dtype.str
            if array.shape != shape or kind not in _BY_NAME or units >= COPY_BELOW or "\n" in name:
                return None
            data = array.tobytes()
            names.append(f"{name} {kind}")
            parts.append(data + PADS[-len(data) % ALIGN])
        return _PLACE.pack(offset, units) + "\n".join(names).encode(), b"".join(parts)

    def _unfold(self) -> None:
        """Be arrays alone, which may be exchanged."""
        if self._layout is not None:
            self._arrays, self._layout = dict(self), None

    def _view(self, name: str) -> np.ndarray:
        assert self._layout is not None
        start = self._start
        for own, dtype in _columns(self._layout):
            if own == name:
                return np.frombuffer(self._body, dtype, self._units, start)
            start += _padded(dtype.itemsize * self._units)
        raise KeyError(name)


def columns_of(arrays: Mapping[str, np.ndarray]) -> Columns:
    """`arrays` themselves where they are columns already."""
    return arrays if isinstance(arrays, Columns) else Columns(arrays)


@lru_cache(64)
def _columns(layout: bytes) -> Layout:
    """Names and kinds in their order; raises `ValueError` or `KeyError` where there are none such."""
    pairs = [line.rsplit(" ", 1) for line in layout.decode().split("\n")]
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a column comes twice")
    return tuple((name, _BY_NAME[kind]) for name, kind in pairs)


@lru_cache(1024)
def _size(layout: bytes, units: int) -> int:
    return sum(_padded(dtype.itemsize * units) for _, dtype in _columns(layout))


def _padded(size: int) -> int:
    return size + -size % ALIGN
