"""Calls that hang, until the test is over."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from areal_plugins.builtin.rewards import threads
from areal_plugins.builtin.rewards.threads import AT_ONCE, Threads


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


async def leave_behind(calls: Threads, gate: threading.Event, count: int) -> None:
    """Cancel so many calls once they run."""
    for _ in range(count):
        began = threading.Event()
        call = asyncio.create_task(calls.call(began, gate))
        await asyncio.to_thread(began.wait)
        call.cancel()
        await asyncio.wait({call})


def wait(began: threading.Event, gate: threading.Event) -> str:
    began.set()
    gate.wait()
    return "done"


def opened() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


def test_calls_that_hang_leave_the_others_their_places(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "LEFT_BEHIND", 100)

    async def main() -> str:
        calls = Threads("judge", wait)
        await leave_behind(calls, gate, AT_ONCE + 1)
        result: str = await calls.call(opened(), opened())
        return result

    assert asyncio.run(main()) == "done"


@pytest.mark.parametrize(("count", "ended"), [(2, []), (3, [1])])
def test_a_process_with_too_many_of_them_ends(
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    count: int,
    ended: list[int],
) -> None:
    codes: list[int] = []
    monkeypatch.setattr(threads, "LEFT_BEHIND", 3)
    monkeypatch.setattr(threads.os, "_exit", codes.append)
    asyncio.run(leave_behind(Threads("judge", wait), gate, count))
    assert codes == ended
    assert ("3 calls of judge hang" in caplog.text) is bool(ended)


def test_those_that_end_after_all_are_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr(threads, "LEFT_BEHIND", 2)
    monkeypatch.setattr(threads.os, "_exit", codes.append)

    async def main() -> None:
        calls = Threads("forgiven", wait)
        for _ in range(3):
            gate = threading.Event()
            await leave_behind(calls, gate, 1)
            gate.set()
            for thread in threading.enumerate():
                if thread.name == "forgiven":
                    thread.join()

    asyncio.run(main())
    assert codes == []


@pytest.mark.parametrize(("kind", "told"), [(KeyError, KeyError), (KeyboardInterrupt, KeyboardInterrupt)])
def test_what_the_function_raises_is_raised(kind: type[BaseException], told: type[BaseException]) -> None:
    assert isinstance(raised(kind), told)


def test_a_stray_stop_iteration_is_told_too() -> None:
    assert str(raised(StopIteration)) == "it raised StopIteration()"


def raised(kind: type[BaseException]) -> BaseException | None:
    def broken() -> None:
        raise kind

    async def main() -> BaseException | None:
        try:
            await Threads("judge", broken).call()
        except BaseException as error:
            return error
        return None

    return asyncio.run(main())
