"""New weights."""

from __future__ import annotations

import asyncio

import pytest

from areal_core.data import Completion
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
