"""Frames on a stream socket: a head of bounded size and the raw bytes that belong to it.

A frame is `<IQ>` (length of the head, length of the body), the head padded to 16 bytes, the body. It
is received into one buffer, straight from the socket when it is large, and sent without copying
large parts. What is sent within one iteration of the loop leaves in one write.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from struct import Struct
from typing import cast

_PREFIX = Struct("<IQ")
_ALIGN = 16
_SCRATCH = 1 << 18
_CHUNK = 1 << 17

GREETING_LIMIT = 1 << 14
"""Largest frame, in bytes, from a stranger."""
FRAME_LIMIT = 1 << 34
"""Largest frame, in bytes, once both ends know each other."""

Bytes = bytes | bytearray | memoryview
Receiver = Callable[[memoryview, memoryview], None]
"""Takes a frame: head and body. What it raises as `ValueError` ends the wire as malformed."""


class Wire(asyncio.BufferedProtocol):
    """One end of a connection; asyncio's transport calls it with bytes, its owner sees frames."""

    def __init__(self, opened: Callable[[Wire], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.heard = self._loop.time()
        self.limit = GREETING_LIMIT
        # Receiving: `_scratch[:_end]` holds the start of the next frame, or `_frame` is being filled.
        self._scratch = bytearray(_SCRATCH)
        self._end = 0
        self._frame: bytearray | None = None
        self._filled = 0
        self._head = 0
        self._receiver: Receiver | None = None
        self._waiting: deque[tuple[memoryview, memoryview]] = deque()
        self._arrival = asyncio.Event()
        # Sending.
        self._outbox: deque[Bytes] = deque()
        self._scheduled = self._paused = False
        self._drained = asyncio.Event()
        self._reason = ""

    # --- for the owner -----------------------------------------------------------------------------

    def send(self, head: bytes, parts: Iterable[Bytes] = (), size: int = 0) -> None:
        """Queue a frame: `parts` are its body, `size` bytes in all. After the end it is dropped."""
        if self.lost.done():
            return
        self._outbox.append(_PREFIX.pack(len(head), size) + head + bytes(-len(head) % _ALIGN))
        self._outbox.extend(parts)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    async def drained(self) -> None:
        """Return once the other end keeps up (or is gone)."""
        while self._paused and not self.lost.done():
            self._drained.clear()
            await self._drained.wait()

    async def receive(self) -> tuple[memoryview, memoryview]:
        """The next frame, before `attach`.

        Raises:
            ConnectionError: the wire ended first, with the reason.

        """
        while not self._waiting:
            if self.lost.done():
                raise ConnectionError(self.lost.result())
            self._arrival.clear()
            await self._arrival.wait()
        return self._waiting.popleft()

    def attach(self, receiver: Receiver) -> None:
        """Give every frame from now on to `receiver`, those that wait first."""
        self._receiver = receiver
        while self._waiting and not self.lost.done():
            self._deliver(*self._waiting.popleft())

    def close(self, reason: str = "this end closed the link") -> None:
        """Send what is queued, then end."""
        if self._transport is not None and not self.lost.done():
            self._reason = self._reason or reason
            self._paused = False
            self._flush()
            self._transport.close()

    def abort(self, reason: str) -> None:
        """End at once."""
        if self._transport is not None and not self.lost.done():
            self._reason = self._reason or reason
            self._transport.abort()

    # --- for asyncio -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast(asyncio.Transport, transport)
        if self._opened is not None:
            self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End, for whatever reason."""
        self._outbox.clear()
        closed = exc is None or isinstance(exc, ConnectionError)  # a reset is a close with bytes still under way
        self.lost.set_result(self._reason or ("the other end closed the link" if closed else f"the link broke: {exc}"))
        self._drained.set()
        self._arrival.set()

    def pause_writing(self) -> None:
        """The socket is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._paused = False
        self._flush()
        if not self._paused:
            self._drained.set()

    def get_buffer(self, _sizehint: int) -> memoryview:
        """Where the next bytes go."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return memoryview(self._scratch)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self.heard = self._loop.time()
        if self._frame is None:
            self._end += nbytes
            self._split()
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._arrived(frame, self._head)

    # --- inside ------------------------------------------------------------------------------------

    def _split(self) -> None:
        """Cut the frames out of the scratch buffer; one that is not complete gets a buffer of its own."""
        start, end, scratch = 0, self._end, memoryview(self._scratch)
        while end - start >= _PREFIX.size:
            head, body = _PREFIX.unpack_from(scratch, start)
            size = head + -head % _ALIGN + body
            if not 0 < head <= size <= self.limit:
                self.abort(f"a malformed frame: {head} and {body} bytes")
                return
            start += _PREFIX.size
            if end - start < size:
                self._frame, self._head, self._filled = bytearray(size), head, end - start
                self._frame[: self._filled] = scratch[start:end]
                start = end
                break
            frame = bytearray(scratch[start : start + size])
            start += size
            self._arrived(frame, head)
        self._end = end - start
        if start and self._end:
            scratch[: self._end] = bytes(scratch[start:end])

    def _arrived(self, frame: bytearray, head: int) -> None:
        if self._reason or self.lost.done():
            return
        view = memoryview(frame)
        parts = view[:head], view[head + -head % _ALIGN :]
        if self._receiver is None:
            self._waiting.append(parts)
            self._arrival.set()
        else:
            self._deliver(*parts)

    def _deliver(self, head: memoryview, body: memoryview) -> None:
        assert self._receiver is not None
        try:
            self._receiver(head, body)
        except ValueError as error:
            self.abort(f"a malformed message: {error}")

    def _flush(self) -> None:
        """Write until the socket is full: small parts in one piece, large ones as they are."""
        self._scheduled = False
        small: list[Bytes] = []
        pending = 0
        while self._outbox and not self._paused:
            part = self._outbox.popleft()
            if len(part) < _CHUNK:
                small.append(part)
                pending += len(part)
            if pending >= _CHUNK or len(part) >= _CHUNK:
                self._write(small)
                small, pending = [], 0
            if len(part) >= _CHUNK:
                self._large(memoryview(part))
        self._write(small)

    def _write(self, parts: list[Bytes]) -> None:
        if parts and self._transport is not None:
            self._transport.write(b"".join(parts))

    def _large(self, part: memoryview) -> None:
        assert self._transport is not None
        for start in range(0, len(part), _CHUNK):
            if self._paused:
                self._outbox.appendleft(part[start:])
                return
            self._transport.write(part[start : start + _CHUNK])
