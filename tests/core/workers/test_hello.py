import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest

from areal_core.workers import hello
from areal_core.workers.hello import Card, Hello, Refused, greet
from areal_core.workers.wire import FRAME_LIMIT, GREETING_LIMIT, Wire

Wires = Callable[[], AbstractAsyncContextManager[tuple[Wire, Wire]]]
KEY = b"k" * 32
ENGINE, CONTROLLER = Card("engine-0", "engine", "unix:/x"), Card("controller", files=("/p.py",))


async def both(here: Wire, there: Wire, other_key: bytes = KEY) -> list[object]:
    dialer = greet(here, "dialer", KEY, ENGINE)
    listener = greet(there, "listener", other_key, CONTROLLER)
    return await asyncio.gather(dialer, listener, return_exceptions=True)


def test_both_ends_learn_who_the_other_is(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as ends:
            assert await both(*ends) == [CONTROLLER, ENGINE]

    asyncio.run(test())


def test_large_frames_are_taken_only_afterwards(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            assert here.limit == GREETING_LIMIT
            await both(here, there)
            assert (here.limit, there.limit) == (FRAME_LIMIT, FRAME_LIMIT)

    asyncio.run(test())


def test_both_ends_refuse_another_key(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            for outcome in await both(here, there, b"other" * 6):
                assert isinstance(outcome, Refused)
                assert "another key" in str(outcome)

    asyncio.run(test())


def test_the_key_never_travels(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            seen: list[bytes] = []
            send = here.send
            here.send = lambda head, *rest: (seen.append(head), send(head, *rest))[1]  # type: ignore[method-assign]
            await both(here, there)
            assert seen
            assert not any(KEY in frame for frame in seen)

    asyncio.run(test())


@pytest.mark.parametrize(("field", "value"), [("protocol", 99), ("release", "0.0.7"), ("magic", "http")])
def test_what_does_not_fit_is_named(wires: Wires, field: str, value: object) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            theirs = {**msgspec.to_builtins(Hello(), builtin_types=[bytes]), field: value}
            there.send(msgspec.msgpack.encode(theirs))
            with pytest.raises(Refused, match=f"{field} {value} at the other end, .* here: install the same"):
                await greet(here, "dialer", KEY, ENGINE)

    asyncio.run(test())


@pytest.mark.parametrize("frame", [b"\xff", b"GET / HTTP/1.1", msgspec.msgpack.encode({"magic": 5})])
def test_garbage_is_refused(wires: Wires, frame: bytes) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            there.send(frame)
            with pytest.raises(Refused, match="does not speak this protocol"):
                await greet(here, "dialer", KEY, ENGINE)

    asyncio.run(test())


def test_a_proof_cannot_be_reflected(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as (here, there):

            async def reflect() -> None:
                for _ in range(2):
                    head, _ = await there.receive()
                    there.send(bytes(head))

            mirror = asyncio.create_task(reflect())
            with pytest.raises(Refused, match="another key"):
                await greet(here, "dialer", KEY, ENGINE)
            await mirror

    asyncio.run(test())


def test_an_end_that_leaves_is_no_end(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            there.close()
            with pytest.raises(Refused, match="closed the link"):
                await greet(here, "dialer", KEY, ENGINE)

    asyncio.run(test())


def test_a_silent_end_is_given_up_on(wires: Wires) -> None:
    async def test() -> None:
        async with wires() as (here, _):
            with pytest.raises(Refused, match="did not answer within 0 s"):
                await greet(here, "dialer", KEY, ENGINE, timeout=0)
            assert await here.lost == "silent"

    asyncio.run(test())


def test_an_environment_without_the_distribution_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hello.installed, "version", lambda name: None)
    hello._release.cache_clear()
    try:
        assert Hello().release == "(not installed)"
    finally:
        hello._release.cache_clear()
