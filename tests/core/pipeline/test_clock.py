from __future__ import annotations

import asyncio
import os
import socket
import threading
import time

import pytest

from areal_core.pipeline.clock import debug_mode, make_loop
from areal_core.pipeline.condition import Condition


def test_an_hour_takes_no_time(virtually):
    async def main() -> float:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - began

    began = time.monotonic()
    assert virtually(main()) == 3600
    assert time.monotonic() - began < 60


def test_timers_fire_in_order_of_their_times(virtually):
    async def main() -> list[int]:
        order: list[int] = []

        async def after(seconds: float, name: int) -> None:
            await asyncio.sleep(seconds)
            order.append(name)

        await asyncio.gather(after(3, 3), after(1, 1), after(2, 2))
        return order

    assert virtually(main()) == [1, 2, 3]


def test_the_order_of_timers_does_not_depend_on_how_late_they_are_set(virtually):
    async def order(offset: float) -> list[str]:
        seen: list[str] = []

        async def twice(name: str, first: float, second: float) -> None:
            await asyncio.sleep(first)
            await asyncio.sleep(second)
            seen.append(name)

        await asyncio.sleep(offset)
        await asyncio.gather(twice("0.1 + 0.2", 0.1, 0.2), twice("0.3", 0.3, 0.0), twice("0.2 + 0.1", 0.2, 0.1))
        return seen

    offsets = (0, 0.7, 1e3 + 0.1, 1e6 + 0.3, 12345678.9)
    orders = {tuple(virtually(order(offset), limit=1e8)) for offset in offsets}
    assert len(orders) == 1


def test_a_timeout_measures_virtual_time(virtually):
    async def main() -> None:
        async with asyncio.timeout(5):
            await asyncio.sleep(6)

    with pytest.raises(TimeoutError):
        virtually(main())


def test_what_would_run_in_a_thread_runs_at_once_and_here(virtually):
    async def main() -> bool:
        return await asyncio.to_thread(threading.get_ident) == threading.get_ident()

    assert virtually(main())


def test_what_fails_in_a_would_be_thread_raises_where_it_is_awaited(virtually):
    async def main() -> None:
        await asyncio.to_thread(int, "no number")

    with pytest.raises(ValueError, match="no number"):
        virtually(main())


def test_input_wakes_a_loop_that_has_nothing_to_do(virtually):
    async def main() -> str:
        reader, writer = socket.socketpair()
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(reader, done.set)
        writer.send(b"x")
        await done.wait()
        loop.remove_reader(reader)
        reader.close()
        writer.close()
        return "woken"

    assert virtually(main()) == "woken"


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("0", False), ("", False), (None, False)])
def test_debug_mode_is_asked_for_by_a_variable(value, expected, monkeypatch):
    monkeypatch.delenv("AREAL_DEBUG_MODE", raising=False)
    if value is not None:
        monkeypatch.setitem(os.environ, "AREAL_DEBUG_MODE", value)
    assert debug_mode() is expected


def test_a_real_loop_keeps_real_time():
    loop = make_loop(virtual=False)
    try:
        assert abs(loop.time() - time.monotonic()) < 1
    finally:
        loop.close()


def test_a_condition_wakes_everyone_who_waits_for_what_now_holds(virtually):
    async def main() -> list[str]:
        condition, facts, seen = Condition(), {"a": False, "b": False}, []

        async def waits(name: str) -> None:
            await condition.until(lambda: facts[name])
            seen.append(name)

        tasks = [asyncio.ensure_future(waits(name)) for name in "abb"]
        await asyncio.sleep(0)
        facts["b"] = True
        condition.changed()
        await asyncio.gather(*tasks[1:])
        tasks[0].cancel()
        return seen

    assert virtually(main()) == ["b", "b"]


def test_a_condition_that_holds_is_not_waited_for(virtually):
    async def main() -> None:
        await Condition().until(lambda: True)

    virtually(main())
