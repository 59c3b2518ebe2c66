"""Frames, without a socket: what one wire writes is fed to another in pieces of any size."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.workers.wire import FRAME_LIMIT, GREETING_LIMIT, Wire

Frame = tuple[bytes, bytes]
frames = st.lists(st.tuples(st.binary(min_size=1, max_size=50), st.binary(max_size=200)), max_size=6)


class Pipe(asyncio.Transport):
    """Keeps what is written; full when told so."""

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.wire, self.writes, self.full_after = wire, [], None
        wire.connection_made(self)

    def write(self, data: object) -> None:
        self.writes.append(bytes(data))
        if self.full_after is not None and len(self.writes) >= self.full_after:
            self.wire.pause_writing()

    def abort(self) -> None:
        self.wire.connection_lost(None)

    close = abort


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())


def feed(wire: Wire, data: bytes, pieces: Sequence[int] = ()) -> None:
    sizes = iter(pieces)
    while data and not wire.lost.done():
        room = wire.get_buffer(-1)
        size = min(len(room), len(data), next(sizes, len(data)) or 1)
        room[:size] = data[:size]
        wire.buffer_updated(size)
        data = data[size:]


async def sent(messages: Sequence[Frame]) -> bytes:
    pipe = Pipe(Wire())
    for head, body in messages:
        pipe.wire.send(head, [body], len(body))
    await asyncio.sleep(0)
    return b"".join(pipe.writes)


def opened() -> tuple[Wire, list[Frame]]:
    wire, got = Wire(), []
    Pipe(wire)
    wire.limit = FRAME_LIMIT
    wire.attach(lambda head, body: got.append((bytes(head), bytes(body))))
    return wire, got


@given(frames, st.lists(st.integers(1, 60), max_size=40))
def test_frames_arrive_whole_however_the_bytes_are_cut(messages: list[Frame], pieces: list[int]) -> None:
    async def test() -> None:
        wire, got = opened()
        feed(wire, await sent(messages), pieces)
        assert got == messages

    run(test)


def test_a_frame_larger_than_any_buffer_arrives_whole() -> None:
    async def test() -> None:
        wire, got = opened()
        messages = [(b"first", b""), (b"large", bytes(range(256)) * 4000), (b"last", b"x")]
        feed(wire, await sent(messages))
        assert got == messages

    run(test)


def test_what_is_sent_in_one_turn_of_the_loop_leaves_in_one_write() -> None:
    async def test() -> None:
        pipe = Pipe(Wire())
        for n in range(10):
            pipe.wire.send(b"%d" % n)
        await asyncio.sleep(0)
        assert len(pipe.writes) == 1

    run(test)


def test_a_full_socket_is_not_written_to_until_it_has_room() -> None:
    async def test() -> None:
        pipe = Pipe(Wire())
        pipe.full_after = 1
        pipe.wire.send(b"h", [bytes(1 << 20)], 1 << 20)
        await asyncio.sleep(0)
        before = len(pipe.writes)
        pipe.full_after = None
        pipe.wire.resume_writing()
        assert before < len(pipe.writes)
        assert sum(map(len, pipe.writes)) == 12 + 16 + (1 << 20)

    run(test)


def test_a_sender_waits_while_the_socket_is_full() -> None:
    async def test() -> None:
        pipe = Pipe(Wire())
        pipe.wire.pause_writing()
        waiting = asyncio.create_task(pipe.wire.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        pipe.wire.resume_writing()
        await waiting

    run(test)


def test_a_waiting_sender_is_let_go_when_the_wire_ends() -> None:
    async def test() -> None:
        pipe = Pipe(Wire())
        pipe.wire.pause_writing()
        waiting = asyncio.create_task(pipe.wire.drained())
        await asyncio.sleep(0)
        pipe.abort()
        await waiting

    run(test)


def test_closing_sends_what_is_queued_even_to_a_full_socket() -> None:
    async def test() -> None:
        pipe = Pipe(Wire())
        pipe.wire.pause_writing()
        pipe.wire.send(b"last words")
        pipe.wire.close()
        assert b"last words" in b"".join(pipe.writes)

    run(test)


@pytest.mark.parametrize(
    "prefix", [(0, 0), (0, 10), (GREETING_LIMIT + 1, 0), (1, GREETING_LIMIT), (2**32 - 1, 2**64 - 1)]
)
def test_a_stranger_cannot_make_us_allocate(prefix: tuple[int, int]) -> None:
    async def test() -> None:
        wire = Wire()
        Pipe(wire)
        feed(wire, pack("<IQ", *prefix))
        assert "malformed frame" in wire.lost.result()
        assert wire._frame is None

    run(test)


@given(st.binary(min_size=12, max_size=400))
def test_whatever_bytes_come_the_buffers_stay_small(data: bytes) -> None:
    async def test() -> None:
        wire = Wire()
        Pipe(wire)
        feed(wire, data)
        assert wire._frame is None or len(wire._frame) <= GREETING_LIMIT

    run(test)


def test_a_receiver_that_refuses_a_message_ends_the_wire_with_the_reason() -> None:
    async def test() -> None:
        wire = Wire()
        Pipe(wire)

        def refuse(_head: memoryview, _body: memoryview) -> None:
            raise ValueError("no such kind")

        wire.attach(refuse)
        feed(wire, await sent([(b"x", b"")]))
        assert wire.lost.result() == "a malformed message: no such kind"

    run(test)


def test_frames_that_came_before_the_receiver_are_kept_in_order() -> None:
    async def test() -> None:
        wire, got = Wire(), []
        Pipe(wire)
        feed(wire, await sent([(b"1", b""), (b"2", b"")]))
        wire.attach(lambda head, _body: got.append(bytes(head)))
        assert got == [b"1", b"2"]

    run(test)


def test_nothing_is_delivered_after_the_end() -> None:
    async def test() -> None:
        wire, got = Wire(), []
        Pipe(wire)

        def take(head: memoryview, _body: memoryview) -> None:
            got.append(bytes(head))
            wire.abort("enough")

        wire.attach(take)
        feed(wire, await sent([(b"1", b""), (b"2", b"")]))
        assert got == [b"1"]

    run(test)
