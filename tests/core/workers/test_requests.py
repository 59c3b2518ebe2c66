import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from areal_core.data import Completion, GenerateRequest, Sampling
from areal_core.workers.requests import GroupRequests

PROMPT = np.array([1, 2], np.int32)


class Engine:
    """Answers when told to."""

    name = "engine-0"

    def __init__(self) -> None:
        self.requests: list[GenerateRequest] = []
        self.asked, self.go = asyncio.Event(), asyncio.Event()
        self.left = 0

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        raise AssertionError(f"{method} is not called")

    async def stream(self, method: str, request: GenerateRequest) -> AsyncIterator[Completion]:
        self.requests.append(request)
        self.asked.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.left += 1
            raise
        for index in range(request.n):
            yield Completion(index, PROMPT, np.zeros(2, np.float32), np.zeros(2, np.int64), "stop", str(index))

    async def close(self) -> None:
        pass


def test_asks_of_the_same_moment_are_one_request() -> None:
    async def main() -> None:
        engine = Engine()
        requests = GroupRequests(engine, "g", 3)
        engine.go.set()
        answers = [requests.ask(PROMPT, Sampling(), (member, 0)) for member in range(3)]
        assert [(await answer).text for answer in answers] == ["0", "1", "2"]
        assert [request.n for request in engine.requests] == [3]

    asyncio.run(main())


def test_asks_of_another_moment_are_another_request() -> None:
    async def main() -> None:
        engine = Engine()
        requests = GroupRequests(engine, "g", 3)
        engine.go.set()
        for member in range(2):
            await requests.ask(PROMPT, Sampling(), (member, 0))
        assert [request.n for request in engine.requests] == [1, 1]
        assert len({request.seed for request in engine.requests}) == 2
        assert len({request.id for request in engine.requests}) == 2

    asyncio.run(main())


def test_equal_tokens_in_another_array_are_another_request() -> None:
    async def main() -> None:
        engine = Engine()
        requests = GroupRequests(engine, "g", 3)
        engine.go.set()
        await asyncio.gather(*(requests.ask(PROMPT.copy(), Sampling(), (member, 0)) for member in range(2)))
        assert [request.n for request in engine.requests] == [1, 1]

    asyncio.run(main())


def test_a_member_that_stops_waiting_does_not_disturb_the_others() -> None:
    async def main() -> None:
        engine = Engine()
        requests = GroupRequests(engine, "g", 3)
        impatient, patient = (requests.ask(PROMPT, Sampling(), (member, 0)) for member in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        engine.go.set()
        assert (await patient).text == "1"

    asyncio.run(main())


def test_what_nobody_waits_for_is_not_asked() -> None:
    async def main() -> None:
        engine = Engine()
        GroupRequests(engine, "g", 3).ask(PROMPT, Sampling(), (0, 0)).cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert engine.requests == []

    asyncio.run(main())


@pytest.mark.parametrize("started", [True, False])
def test_closing_leaves_every_stream(started: bool) -> None:
    async def main() -> None:
        engine = Engine()
        requests = GroupRequests(engine, "g", 3)
        answer = requests.ask(PROMPT, Sampling(), (0, 0))
        if started:
            await engine.asked.wait()
        await requests.close()
        await asyncio.sleep(0)
        assert engine.left == len(engine.requests) == int(started)
        answer.cancel()

    asyncio.run(main())
