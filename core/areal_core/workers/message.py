"""What travels on a wire: small msgpack messages whose arrays lie beside them, unencoded.

A message is `[kind, number, name, payload]`. Payloads are plain values and attrs records; the receiver
decodes them by the types that the service's method declares, so that nothing else can come out of
a message. An array is an extension (its dtype's number; offset and shape) that points into the frame,
and so are the columns of a trajectory, all of them together.
"""

from __future__ import annotations

import math
from enum import IntEnum
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception by its usual case
from typing import Any, get_origin

import msgspec
import numpy as np
from msgspec.msgpack import Decoder, Encoder, Ext

from areal_core.columns import ALIGN, COPY_BELOW, DTYPES, PADS, Columns

_DTYPES = dict(enumerate(DTYPES))
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_SHAPES = tuple(Struct(f"<{1 + ndim}Q") for ndim in range(33))
_VECTOR = _SHAPES[1]
_NOTHING = memoryview(b"")
_COLUMNS = 64
"""The extension's number of a trajectory's columns; below it are those of arrays."""


class Kind(IntEnum):
    """What a message means; `number` is the call's, given by the caller."""

    CALL = 0
    STREAM = 1
    REPLY = 2
    ITEMS = 3
    END = 4
    ERROR = 5
    CANCEL = 6
    MORE = 7
    PING = 8
    PONG = 9


class Message(msgspec.Struct, array_like=True, frozen=True, gc=False, forbid_unknown_fields=True):
    """A message whose payload is not decoded yet."""

    kind: Kind
    number: int
    name: str
    payload: msgspec.Raw


class Packer:
    """Encodes; an instance belongs to one wire."""

    def __init__(self) -> None:
        self._encoder = Encoder(enc_hook=self._hook)
        self._parts: list[bytearray | memoryview] = []
        self._tail = bytearray()
        self._offset = 0

    def pack(self, kind: Kind, number: int, name: str, payload: Any) -> tuple[bytes, list[bytearray | memoryview], int]:
        """The head, the bytes of its arrays and their sum. Large arrays are not copied: leave them alone until sent.

        Raises:
            TypeError: the payload holds something that cannot cross.

        """
        self._tail, self._offset = bytearray(), 0
        parts = self._parts = [self._tail]
        head = self._encoder.encode((kind, number, name, payload))
        self._parts = []  # a packer keeps no array alive
        return head, parts, self._offset

    def _hook(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            code = _CODES.get(value.dtype)
            if code is None:
                raise TypeError(f"an array of {value.dtype} cannot cross between processes")
            where = _SHAPES[value.ndim].pack(self._offset, *value.shape)
            self._append(value.tobytes() if value.size < COPY_BELOW else _raw(value))
            return Ext(code, where)
        if isinstance(value, Columns):
            return self._columns(value)
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"a {type(value).__name__} cannot cross between processes")

    def _columns(self, columns: Columns) -> Any:
        packed = columns.pack(self._offset)
        if packed is None:
            return dict(columns)
        told, data = packed
        self._tail += data
        self._offset += len(data)
        return Ext(_COLUMNS, told)

    def _append(self, data: bytes | memoryview) -> None:
        size = len(data)
        padding = -size % ALIGN
        if isinstance(data, bytes):
            self._tail += (data + PADS[padding]) if padding else data
        else:
            self._tail = bytearray(padding)
            self._parts += (data, self._tail)
        self._offset += size + padding


class Unpacker:
    """Decodes; an instance belongs to one wire. Arrays are writable views of the frame that brought them."""

    def __init__(self) -> None:
        self._messages: Decoder[Message] = Decoder(Message)
        self._decoders: dict[Any, Decoder[Any]] = {}
        self._body = _NOTHING

    def message(self, head: memoryview) -> Message:
        """The message without its payload; raises `ValueError` where it is none."""
        return self._messages.decode(head)

    def payload(self, message: Message, kind: Any, body: memoryview) -> Any:
        """The payload as a `kind`; raises `ValueError` where it is not one."""
        decoder = self._decoders.get(kind)
        if decoder is None:
            decoder = self._decoders[kind] = Decoder(kind, dec_hook=_expect, ext_hook=self._extension)
        self._body = body
        decoded = decoder.decode(message.payload)
        self._body = _NOTHING
        return decoded

    def _extension(self, code: int, where: memoryview) -> np.ndarray | Columns:
        return Columns.unpack(where, self._body) if code == _COLUMNS else self._array(code, where)

    def _array(self, code: int, where: memoryview) -> np.ndarray:
        try:
            if len(where) == _VECTOR.size:
                return self._vector(code, *_VECTOR.unpack(where))
            offset, *shape = _SHAPES[len(where) // 8 - 1].unpack(where)
            return self._vector(code, offset, math.prod(shape)).reshape(shape)
        except (KeyError, IndexError, OverflowError, StructError) as error:
            raise ValueError(f"a malformed array: {error!r}") from error

    def _vector(self, code: int, offset: int, size: int) -> np.ndarray:
        if not size:
            return np.empty(0, _DTYPES[code])
        return np.frombuffer(self._body, _DTYPES[code], size, offset)


def _raw(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _expect(kind: Any, value: Any) -> Any:
    if isinstance(value, np.ndarray) and (kind is np.ndarray or get_origin(kind) is np.ndarray):
        return value
    if kind is Columns and isinstance(value, Columns):
        return value
    if kind is Columns and isinstance(value, dict) and all(map(_is_column, value.items())):
        return Columns(value)
    raise TypeError(f"expected {kind}, not a {type(value).__name__}")


def _is_column(pair: tuple[Any, Any]) -> bool:
    return isinstance(pair[0], str) and isinstance(pair[1], np.ndarray)
