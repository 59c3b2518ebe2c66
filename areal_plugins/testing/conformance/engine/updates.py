"""New weights."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from attrs import evolve

from areal_core.data import Completion, WeightVersion
from areal_core.protocols import Engine
from areal_plugins.testing.conformance.base import Subject
from areal_plugins.testing.conformance.engine.rules import EngineRules, named
from areal_plugins.testing.conformance.reference import Reference
from areal_plugins.testing.conformance.serving import (
    FIRST,
    NEXT,
    Bench,
    Weights,
    collect,
    drawn,
    request,
    swap,
    turns,
)


class Updates(EngineRules):
    """New weights while nothing, something or much is asked of the engine."""

    @pytest.mark.parametrize("mechanism", ["tensors", "hf-dir"])
    def test_new_weights_answer(self, bench: Bench, subject: Subject, other: Reference, mechanism: str) -> None:
        """After `load_weights` answers are those of the new weights, and carry their version."""
        self.accepts(subject, mechanism)

        async def use(engine: Engine) -> list[Completion]:
            await collect(engine, request([5, 6, 7], name="before", n=2))  # a prompt that is cached
            await swap(engine, Weights(other, mechanism), NEXT, keep=bench.context.interruptible)
            return await collect(engine, request([5, 6, 7], name="after", n=2))

        for answer in bench.run(use):
            assert set(answer.versions.tolist()) == {NEXT.code}, f"{NEXT} is loaded, tokens carry {named(answer)}"
            self.agrees(other, [5, 6, 7], answer)

    def test_a_running_answer_goes_on_under_new_weights(
        self, bench: Bench, subject: Subject, model: Reference, other: Reference
    ) -> None:
        """A running completion keeps its tokens over an update and goes on; each token has its own version."""
        if not subject.descriptor.capabilities.interruptible:
            pytest.skip("the engine is not interruptible")
        mechanism = self.first_accepted(subject)

        async def use(engine: Engine) -> list[Completion]:
            running = asyncio.ensure_future(collect(engine, request([5, 6], n=2, max_new_tokens=60)))
            await drawn(engine, 20)
            await swap(engine, Weights(other, mechanism), NEXT, keep=True)
            return await running

        for answer in bench.run(use):
            assert len(answer.tokens) == 60, f"an update left {len(answer.tokens)} of 60 tokens"
            assert named(answer) == [str(FIRST), str(NEXT)], f"its tokens carry {named(answer)}, in this order"
            old = int((answer.versions == FIRST.code).sum())
            self.close_to(model.logits([5, 6], answer.tokens)[:old], answer, "before the update")

    def test_an_answer_that_was_begun_goes_on(self, bench: Bench, model: Reference) -> None:
        """An engine with `partial` tells what is drawn so far, and goes on from such, keeping every column of it."""
        wanted, earlier = request([5, 6], n=2, max_new_tokens=60), WeightVersion(1, 1).code

        async def use(engine: Any) -> Any:
            if not hasattr(engine, "partial"):
                pytest.skip("the engine has no `partial`")
            running = asyncio.ensure_future(collect(engine, wanted))
            await drawn(engine, 20)
            parts = sorted(engine.partial(wanted.id), key=lambda part: part.index)
            uncut = await running
            if len(parts) < 2:
                return parts, uncut, uncut[0], uncut
            marked = evolve(parts[0], logprobs=parts[0].logprobs - 1, versions=np.full_like(parts[0].versions, earlier))
            resumed = evolve(wanted, id="again", begun=(marked, uncut[1]))
            return parts, uncut, marked, await collect(engine, resumed)

        parts, uncut, marked, (answer, whole) = bench.run(use)
        assert [part.index for part in parts] == [0, 1], f"while two answers are drawn it tells of {len(parts)}"
        for part, end in zip(parts, uncut, strict=True):
            assert part.finish == "abort", f"a part has finish {part.finish}"
            assert 0 < len(part.tokens) < 60, f"after 20 tokens of two answers a part has {len(part.tokens)}"
            assert part.tokens.tolist() == end.tokens[: len(part.tokens)].tolist(), "an answer does not begin as told"
        kept = len(marked.tokens)
        for name in ("tokens", "logprobs", "versions"):
            found = getattr(answer, name)[:kept].tolist()
            assert found == getattr(marked, name).tolist(), f"the {name} that were begun are not kept"
        assert len(answer.tokens) == 60, f"an answer of 60 tokens that was begun has {len(answer.tokens)}"
        assert set(answer.versions[kept:].tolist()) == {FIRST.code}, f"it serves {FIRST}, tokens carry {named(answer)}"
        rest = evolve(answer, tokens=answer.tokens[kept:], logprobs=answer.logprobs[kept:])
        self.close_to(model.logits([5, 6], answer.tokens)[kept:], rest, "after what was begun")
        assert whole.tokens.tolist() == uncut[1].tokens.tolist(), "an answer that was whole already has changed"

    def test_a_waiting_request_gets_the_new_weights(self, bench: Bench, subject: Subject, other: Reference) -> None:
        """A request that arrives during the update is answered by the new weights alone."""
        source = Weights(other, self.first_accepted(subject))

        async def use(engine: Engine) -> list[Completion]:
            await engine.pause(bench.context.interruptible)
            waiting = asyncio.ensure_future(collect(engine, request([5, 6, 7], n=2)))
            await turns(3)
            await engine.load_weights(source, NEXT)
            await engine.resume()
            return await waiting

        for answer in bench.run(use):
            assert set(answer.versions.tolist()) == {NEXT.code}, f"{NEXT} is loaded, tokens carry {named(answer)}"
            self.agrees(other, [5, 6, 7], answer)
