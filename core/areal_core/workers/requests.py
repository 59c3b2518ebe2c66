"""What the members of a group ask of one engine: equal asks of the same moment become one request."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import count

import numpy as np
from attrs import field, frozen

from areal_core.data import Completion, GenerateRequest, Sampling, Trajectory, TrajectoryGroup
from areal_core.errors import ComponentError
from areal_core.protocols import Peer
from areal_core.workers.partial import continued, interrupted
from areal_core.workers.seeds import derive

Answer = asyncio.Future[Completion]


@frozen(eq=False)
class _Ask:
    """Members that wait for completions of the same tokens; the first one's draws name the stream."""

    tokens: np.ndarray
    sampling: Sampling
    seed: int
    answers: list[Answer] = field(factory=list)


class GroupRequests:
    """The requests of one group, from the first ask to `close`, which ends those still running.

    Asks are collected until every member that can run has run (one turn of the loop) and then sent. The first
    request goes on from `begun`.
    """

    def __init__(self, engine: Peer, label: str, seed: int, begun: TrajectoryGroup | None = None) -> None:
        self.engine = engine.name
        self._peer, self._label, self._seed, self._begun = engine, label, seed, begun
        self._first: tuple[GenerateRequest, _Ask] | None = None
        self._collected: dict[tuple[int, Sampling], _Ask] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._numbers = count()

    def ask(self, tokens: np.ndarray, sampling: Sampling, stream: tuple[int, int]) -> Answer:
        """One completion of `tokens`. `stream` is the member and its turn; the draws depend on it and the seed.

        Only asks that bring the very same array are shared: tokens are never compared.
        """
        loop = asyncio.get_running_loop()
        if not self._collected:
            loop.call_soon(self._send)
        key = (id(tokens), sampling)
        if key not in self._collected:
            self._collected[key] = _Ask(tokens, sampling, derive(self._seed, *stream))
        answer: Answer = loop.create_future()
        self._collected[key].answers.append(answer)
        return answer

    async def partial(self) -> tuple[Trajectory, ...]:
        """What was drawn so far in answer to the first request; later turns are not told of.

        Raises:
            WorkerLost, RemoteError: the engine is gone, or raised.

        """
        if self._first is None:
            return ()
        request, ask = self._first
        unfinished: list[Completion] = await self._peer.call("partial", request.id)
        drawn = {completion.index: completion for completion in unfinished}
        for index, answer in enumerate(ask.answers):
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                drawn[index] = answer.result()
        return interrupted(
            ask.tokens, [drawn.get(index) or Completion.empty(index, "abort") for index in range(request.n)]
        )

    async def close(self) -> None:
        """Leave every stream that still runs, which ends it on the engine."""
        self._collected.clear()
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)

    def _send(self) -> None:
        asks = [ask for ask in self._collected.values() if not all(a.done() for a in ask.answers)]
        self._collected.clear()
        for ask in asks:
            task = asyncio.get_running_loop().create_task(self._serve(ask))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _serve(self, ask: _Ask) -> None:
        """Hand each completion to its member as it ends; what goes wrong reaches all that still wait."""
        begun = () if self._first else continued(self._begun, ask.tokens, len(ask.answers))
        label = f"{self._label}-{next(self._numbers)}"
        request = GenerateRequest(label, ask.tokens, ask.sampling, len(ask.answers), ask.seed, begun)
        self._first = self._first or (request, ask)
        waiting = dict(enumerate(ask.answers))
        try:
            async with aclosing(self._peer.stream("generate", request)) as completions:  # type: ignore[type-var]
                async for completion in completions:
                    self._hand_over(waiting, completion, request)
            if waiting:
                raise self._fault(request, f"ended with {len(waiting)} of {request.n} completions missing")
        except Exception as error:
            for answer in waiting.values():
                if not answer.done():
                    answer.set_exception(error)

    def _hand_over(self, waiting: dict[int, Answer], completion: Completion, request: GenerateRequest) -> None:
        if completion.index not in waiting:
            raise self._fault(request, f"answered with completion {completion.index} twice, or beyond {request.n}")
        if not len(completion.tokens) == len(completion.logprobs) == len(completion.versions):
            raise self._fault(request, f"completion {completion.index} has columns of different lengths")
        answer = waiting.pop(completion.index)
        if not answer.done():
            answer.set_result(completion)

    def _fault(self, request: GenerateRequest, cause: str) -> ComponentError:
        return ComponentError(self.engine, f"generate {request.id}", cause)
