import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from areal_core.data import TaskRef
from areal_core.errors import InputError, RemoteError, WorkerLost
from areal_core.workers import link as link_module
from areal_core.workers.link import Link
from areal_core.workers.message import Kind, Packer
from areal_core.workers.outgoing import WINDOW
from areal_core.workers.wire import Wire

Linked = Callable[..., AbstractAsyncContextManager[tuple[Link, Link]]]
Wires = Callable[[], AbstractAsyncContextManager[tuple[Wire, Wire]]]


class Burst(BaseException):
    pass


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Toys:
    """A service of everything that can happen."""

    def __init__(self) -> None:
        self.produced = 0
        self.events: list[str] = []
        self.began, self.ended = asyncio.Event(), asyncio.Event()

    async def double(self, array: np.ndarray) -> np.ndarray:
        return array * 2

    async def name(self, task: TaskRef, suffix: str = "!") -> str:
        return f"{task}{suffix}"

    async def refuse(self) -> None:
        raise InputError("tasks.jsonl:3", "no answer", "add one")

    async def crash(self) -> None:
        raise ZeroDivisionError("oh")

    async def unsendable(self) -> Any:
        return object()

    async def lie(self) -> int:
        return "no number"  # type: ignore[return-value]

    async def forever(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.events.append("cancelled")
            self.ended.set()

    async def give_up(self) -> None:
        raise asyncio.CancelledError

    async def burst(self) -> None:
        raise Burst("no Exception")

    async def interrupt(self) -> None:
        raise KeyboardInterrupt

    async def half_a_character(self) -> None:
        raise ValueError("\ud800 bad")

    async def speechless(self) -> None:
        raise Speechless

    async def count(self, n: int) -> AsyncIterator[int]:
        try:
            for i in range(n):
                self.produced += 1
                yield i
            if n == 3:
                raise ZeroDivisionError("after three")
        finally:
            self.events.append("closed")
            self.ended.set()

    async def smuggle(self) -> AsyncIterator[Any]:
        yield 1
        yield object()
        await self.forever()

    async def _private(self) -> None: ...

    async def close(self) -> None: ...


def run(test: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_call_returns_what_the_method_returns(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            assert list(await link.call("double", np.arange(3))) == [0, 2, 4]

    run(test)


def test_arguments_that_are_left_out_take_their_defaults(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            task = TaskRef("math", "train", 3)
            assert await link.call("name", task) == "math/train/3!"
            assert await link.call("name", task, "?") == "math/train/3?"

    run(test)


@pytest.mark.parametrize("args", [(), (1, 2, 3)])
def test_a_wrong_number_of_arguments_is_the_callers_error(linked: Linked, args: tuple[object, ...]) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(TypeError, match="name takes 2 arguments"):
                await link.call("name", *args)

    run(test)


def test_an_argument_of_another_type_is_refused_by_name(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(RemoteError, match="TypeError: name: Expected `object`, got `int`"):
                await link.call("name", 5)

    run(test)


@pytest.mark.parametrize("method", ["no_such", "_private", "close", "count"])
def test_only_what_a_service_offers_can_be_called(linked: Linked, method: str) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(RemoteError, match="there is no such method"):
                await link.call(method)

    run(test)


@pytest.mark.parametrize("method", ["no_such", "_private", "close", "__init__"])
def test_the_serving_end_trusts_no_caller(linked: Linked, method: str) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            link._outgoing._offers = {method: link._outgoing._offers["refuse"]}  # what a forged caller would do
            with pytest.raises(RemoteError, match=f"there is no '{method}' to call"):
                await link.call(method)

    run(test)


def test_an_error_brings_its_type_text_and_traceback(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(RemoteError, match="worker: crash: ZeroDivisionError: oh") as caught:
                await link.call("crash")
            assert "in crash" in caught.value.error.traceback
            assert "in crash" in caught.value.__notes__[0]
            assert caught.value.exit_code == 1

    run(test)


def test_an_input_error_reads_as_it_would_here(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(RemoteError) as caught:
                await link.call("refuse")
            assert str(caught.value) == str(InputError("tasks.jsonl:3", "no answer", "add one"))
            assert caught.value.exit_code == 2

    run(test)


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("unsendable", "TypeError: a object cannot cross"),
        ("lie", "ValueError: its answer is no"),
        ("give_up", "Cancelled"),
        ("burst", "Burst: no Exception"),
        ("interrupt", "KeyboardInterrupt"),
        ("half_a_character", r"ValueError: \\ud800 bad"),
        ("speechless", "Speechless: its message cannot be shown: its __str__ raises RuntimeError"),
    ],
)
def test_a_call_never_hangs_on_a_broken_method(linked: Linked, method: str, error: str) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(RemoteError, match=error):
                await link.call(method)

    run(test)


def test_an_argument_that_cannot_be_sent_leaves_the_link_usable(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with pytest.raises(TypeError, match="cannot cross"):
                await link.call("double", object())
            assert list(await link.call("double", np.ones(1))) == [2.0]

    run(test)


def test_a_time_out_cancels_the_call_at_the_other_end(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, _):
            with pytest.raises(TimeoutError):
                await link.call("forever", timeout=0.01)
            await toys.ended.wait()
            assert toys.events == ["cancelled"]

    run(test)


def test_a_cancelled_caller_cancels_the_call_at_the_other_end(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, _):
            call = asyncio.create_task(link.call("forever"))
            await toys.began.wait()
            call.cancel()
            await toys.ended.wait()
            with pytest.raises(asyncio.CancelledError):
                await call

    run(test)


def test_a_call_that_is_cancelled_before_it_runs_leaves_no_trace(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, served):
            call = asyncio.create_task(link.call("forever"))
            await asyncio.sleep(0)
            call.cancel()  # the call and its cancellation leave in one write
            await link.ping()
            assert served._incoming._tasks == {}

    run(test)


def test_a_stream_yields_every_item_in_order(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            assert [i async for i in link.stream("count", 1000)] == list(range(1000))

    run(test)


def test_an_error_in_a_stream_comes_after_its_items(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            got: list[int] = []
            with pytest.raises(RemoteError, match="after three"):
                await _collect(link.stream("count", 3), got)
            assert got == [0, 1, 2]

    run(test)


def test_an_item_that_cannot_cross_ends_its_stream(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, _):
            with pytest.raises(RemoteError, match="a object cannot cross between processes"):
                await _collect(link.stream("smuggle"), [])
            await toys.ended.wait()
            assert await link.call("name", TaskRef("math", "train", 3)) == "math/train/3!"

    run(test)


def test_items_of_one_turn_of_the_loop_travel_in_one_message(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            with patch.object(link._unpacker, "message", wraps=link._unpacker.message) as message:
                assert len([i async for i in link.stream("count", WINDOW)]) == WINDOW
            assert message.call_count == 2  # all items, the end

    run(test)


def test_leaving_a_stream_closes_the_generator_at_the_other_end(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, _):
            async with aclosing(_generator(link.stream("count", 10**9))) as items:
                async for i in items:
                    if i == 5:
                        break
            await toys.ended.wait()
            assert toys.events == ["closed"]

    run(test)


def test_a_stream_runs_no_further_ahead_than_its_window(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, _), aclosing(_generator(link.stream("count", 10**9))) as items:
            async for i in items:
                for _ in range(3):
                    await link.ping()
                assert toys.produced <= i + WINDOW + 2
                if i == 100:
                    break

    run(test)


def test_calls_run_side_by_side(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, _):
            slow = asyncio.create_task(link.call("forever"))
            results = await asyncio.gather(*(link.call("double", np.full(3, n)) for n in range(50)))
            assert [result[0] for result in results] == [2 * n for n in range(50)]
            assert not slow.done()
            slow.cancel()

    run(test)


def test_both_ends_can_call(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys(), mine=Toys()) as (link, served):
            there, here = await asyncio.gather(link.call("double", np.ones(1)), served.call("double", np.zeros(1)))
            assert (there[0], here[0]) == (2.0, 0.0)

    run(test)


def test_a_large_array_crosses_both_ways(linked: Linked) -> None:
    async def test() -> None:
        async with linked(Toys()) as (link, _):
            sent = np.arange(3_000_000, dtype=np.float64)
            np.testing.assert_array_equal(await link.call("double", sent), sent * 2)

    run(test)


def test_the_end_of_the_link_fails_every_call_and_stream_under_way(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, served):
            calls = [asyncio.create_task(link.call("forever")) for _ in range(3)]
            items = link.stream("count", 10**9)
            await anext(items)
            await toys.began.wait()
            served.abort("killed by the test")
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, WorkerLost)
            with pytest.raises(WorkerLost, match="closed the link"):
                async for _ in items:
                    pass

    run(test)


def test_the_end_of_the_link_cancels_what_runs_for_the_other_end(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, served):
            call = asyncio.create_task(link.call("forever"))
            await toys.began.wait()
            link.abort("gone")
            await served.lost()
            await toys.ended.wait()
            with pytest.raises(WorkerLost):
                await call

    run(test)


def test_a_link_that_has_ended_says_why(linked: Linked) -> None:
    async def explain(reason: str) -> str:
        return f"killed by SIGKILL ({reason})"

    async def test() -> None:
        async with linked(Toys(), explain=explain) as (link, served):
            served.abort("killed")
            assert await link.lost() == "killed by SIGKILL (the other end closed the link)"
            with pytest.raises(WorkerLost, match="worker worker: killed by SIGKILL"):
                await link.call("double", np.ones(1))
            with pytest.raises(WorkerLost, match="SIGKILL"):
                await anext(link.stream("count", 1))

    run(test)


def test_closing_does_not_wait_for_an_end_that_has_stopped_reading(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "CLOSE_GRACE", 0)

    async def test() -> None:
        async with linked(Toys()) as (link, served):
            assert served._wire._transport is not None
            served._wire._transport.pause_reading()
            call = asyncio.create_task(link.call("double", np.zeros(1_000_000)))
            await asyncio.sleep(0)
            await link.close()
            with pytest.raises(WorkerLost, match="this end closed the link"):
                await call

    run(test)


def test_closing_waits_for_what_it_cancels(linked: Linked) -> None:
    async def test() -> None:
        toys = Toys()
        async with linked(toys) as (link, served):
            call = asyncio.create_task(link.call("forever"))
            await toys.began.wait()
            await served.close()
            assert toys.events == ["cancelled"]
            with pytest.raises(WorkerLost):
                await call

    run(test)


messages = st.binary(max_size=60) | st.tuples(
    st.sampled_from(Kind),
    st.integers(-1, 3),
    st.sampled_from(["count", "double", "x"]),
    st.none() | st.integers(-(2**63), 2**63),
).map(lambda message: Packer().pack(*message)[0])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(messages, max_size=5))
def test_forged_messages_end_the_link_or_are_answered_never_worse(wires: Wires, forged: list[bytes]) -> None:
    async def test() -> None:
        async with wires() as (here, there):
            link = Link(there, "stranger", service=Toys())
            for message in forged:
                here.send(message or b"\0")
            here.send(Packer().pack(Kind.PING, 77, "", None)[0])
            answer = asyncio.create_task(_pong(here))
            await asyncio.wait({answer, link.gone}, return_when=asyncio.FIRST_COMPLETED)
            assert answer.done() or "malformed" in link.gone.result()
            answer.cancel()
            await link.close()
            await asyncio.gather(answer, return_exceptions=True)

    run(test)


async def _pong(wire: Wire) -> None:
    while bytes((await wire.receive())[0]) != Packer().pack(Kind.PONG, 77, "", None)[0]:
        pass


async def _collect(items: AsyncIterator[int], into: list[int]) -> None:
    async for item in items:
        into.append(item)  # noqa: PERF401 - what came before an error counts


def _generator(items: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
    assert isinstance(items, AsyncGenerator)
    return items
