"""Many requests, and requests that make no sense."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from areal_core.data import Completion
from areal_core.errors import InputError, PromptTooLong
from areal_core.protocols import Engine
from areal_plugins.testing.conformance.engine.rules import PLACES, PROMPTS, EngineRules
from areal_plugins.testing.conformance.reference import LONGEST
from areal_plugins.testing.conformance.serving import (
    Bench,
    collect,
    request,
    together,
)

SENSELESS: dict[str, dict[str, Any]] = {
    "empty prompt": {"tokens": []},
    "no completion": {"n": 0},
    "no token": {"max_new_tokens": 0},
    "temperature below 0": {"temperature": -1.0},
    "unknown token": {"tokens": [1 << 20]},
}


class Crowds(EngineRules):
    """Many requests at once, and such as must be refused."""

    def test_requests_run_side_by_side(self, bench: Bench) -> None:
        """A short request ends before a long one that came first."""

        async def use(engine: Engine) -> list[str]:
            ended: list[str] = []

            async def ask(name: str, length: int) -> None:
                await collect(engine, request([7], name=name, max_new_tokens=length))
                ended.append(name)

            await asyncio.gather(ask("long", 90), ask("short", 3), ask("middle", 30))
            return ended

        ended = bench.run(use)
        assert ended == ["short", "middle", "long"], f"requests of 90, 3 and 30 tokens ended in the order {ended}"

    def test_more_requests_than_places_are_all_served(self, bench: Bench) -> None:
        """At most `max_concurrent` completions run; the others wait, and every one is served."""

        async def use(engine: Engine) -> tuple[int, list[list[Completion]]]:
            asked = [request(PROMPTS[i % 4], name=str(i), n=2, max_new_tokens=6) for i in range(8)]
            serving = asyncio.ensure_future(together(engine, asked))
            most = 0
            while not serving.done():
                most = max(most, engine.stats().running)
                await asyncio.sleep(0)
            return most, await serving

        most, answers = bench.run(use)
        assert most <= PLACES, f"{most} completions ran at once where {PLACES} may"
        lengths = [len(answer.tokens) for group in answers for answer in group]
        assert lengths == [6] * 16, f"16 completions of 6 tokens have lengths {lengths}"

    def test_fewer_places_are_kept_to(self, bench: Bench) -> None:
        """After `resize(1)` one completion runs at a time, and every request is served."""

        async def use(engine: Any) -> tuple[int, list[list[Completion]]]:
            engine.resize(1)
            serving = asyncio.ensure_future(together(engine, [request([7], name=str(i)) for i in range(3)]))
            most = 0
            while not serving.done():
                most = max(most, engine.stats().running)
                await asyncio.sleep(0)
            engine.resize(PLACES)
            return most, [*await serving, *await together(engine, [request([7], name="last", n=2)])]

        _optional(bench, "resize")
        most, answers = bench.run(use)
        assert most <= 1, f"{most} completions ran at once after resize(1)"
        lengths = [len(answer.tokens) for group in answers for answer in group]
        assert lengths == [8] * 5, f"5 completions of 8 tokens have lengths {lengths}"

    def test_memory_is_a_share(self, bench: Bench) -> None:
        """`memory` is from 0 to 1, or None; `relieve` while a request runs changes no answer."""

        async def use(engine: Any) -> tuple[float | None, list[int], list[int]]:
            plain = await collect(engine, request([7]))
            serving = asyncio.ensure_future(collect(engine, request([7], name="again")))
            await asyncio.sleep(0)
            if hasattr(engine, "relieve"):
                engine.relieve()
            return engine.memory(), list(plain[0].tokens), list((await serving)[0].tokens)

        _optional(bench, "memory")
        share, plain, relieved = bench.run(use)
        assert share is None or 0 <= share <= 1, f"memory is {share}, which is no share"
        assert relieved == plain, "an answer is another one when caches were emptied meanwhile"

    def test_a_prompt_that_fills_the_model_is_too_long(self, bench: Bench) -> None:
        """A prompt that leaves no room for a token is `PromptTooLong`."""

        async def use(engine: Engine) -> list[Completion]:
            return await collect(engine, request([7] * LONGEST))

        _expect(PromptTooLong, bench, use, f"a prompt of {LONGEST} tokens in a model of {LONGEST}")

    @pytest.mark.parametrize("problem", SENSELESS)
    def test_a_senseless_request_is_refused(self, bench: Bench, problem: str) -> None:
        """A request that makes no sense is an `InputError`, and the engine serves on."""
        wrong = request(**({"tokens": [3], "name": "odd"} | SENSELESS[problem]))

        async def use(engine: Engine) -> list[Completion]:
            try:
                return await collect(engine, wrong)
            finally:
                await _served(engine, problem)

        _expect(InputError, bench, use, problem)


async def _served(engine: Engine, problem: str) -> None:
    answers = await collect(engine, request([3], name="after", max_new_tokens=2))
    assert len(answers) == 1, f"after a refused request ({problem}) another is not served"


def _expect(kind: type[InputError], bench: Bench, use: Any, what: str) -> None:
    try:
        answers = bench.run(use)
    except kind:
        return
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__} instead of {kind.__name__}: {error}") from error
    raise AssertionError(f"{what}: {len(answers)} completions instead of {kind.__name__}")


def _optional(bench: Bench, method: str) -> None:
    if not hasattr(bench.subject.build(bench.context), method):
        pytest.skip(f"the engine has no {method}")
