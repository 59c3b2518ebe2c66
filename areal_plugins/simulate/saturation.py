"""What an engine does when it never lacks work: the throughput that utilization is measured by."""

from __future__ import annotations

import asyncio

from attrs import frozen

from areal_core.pipeline.clock import VirtualLoop
from areal_core.workers.seeds import derive
from areal_plugins.simulate.components import Scenario
from areal_plugins.simulate.engine import Sequence, SimulatedEngine
from areal_plugins.simulate.lengths import tokens

SPARE = 1.25
"""Requests for each place in the batch."""

ROUNDS = 6
"""Answers for each request that are counted, after one that is not; and `LEAST` in all, for a steady mean."""

LEAST = 500

_SPAN = float(1 << 63)


@frozen
class Rate:
    """Tokens a second of one engine, and seconds of the whole trainer for a token; sequences in a batch."""

    engine: float
    trainer: float
    running: float

    def seconds(self, engines: int) -> tuple[float, float]:
        """Seconds for a token of the whole pools."""
        return 1 / (self.engine * engines), self.trainer


def saturated(scenario: Scenario, max_concurrent: int, batch_size: int) -> Rate:
    """Of the scenario's engines and trainer, each by itself; batches are of `batch_size` answers."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        engine, running = runner.run(_drill(scenario, max_concurrent))
    return Rate(engine, _train(scenario, batch_size), running)


async def _drill(scenario: Scenario, max_concurrent: int) -> tuple[float, float]:
    loop = asyncio.get_running_loop()
    engine = SimulatedEngine(scenario.engine_costs(), max_concurrent, loop)
    requests = max(2, int(max_concurrent * SPARE))
    begins, ends = requests, requests + max(LEAST, requests * ROUNDS)
    over: asyncio.Future[None] = loop.create_future()
    marks: list[tuple[float, int]] = []
    count = 0

    def ended(_: Sequence | None) -> None:
        nonlocal count
        count += 1
        if count in (begins, ends):
            marks.append((loop.time(), engine.tokens))
        if count == ends:
            over.set_result(None)
        elif count < ends:
            engine.submit(ask(count + requests))

    def ask(number: int) -> Sequence:
        length = tokens(scenario.answers.at(derive(1, number) / _SPAN), scenario.longest)
        return Sequence(tokens(scenario.prompts.at(derive(2, number) / _SPAN)), length, ended)

    for number in range(requests):
        engine.submit(ask(number))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running = float(engine.running)
    await over
    (began, before), (now, after) = marks
    return (after - before) / (now - began), running


def _train(scenario: Scenario, batch_size: int) -> float:
    """Seconds for each token that was drawn, of a batch with every length in its share."""
    places = ((i + 0.5) / batch_size for i in range(batch_size))
    lengths = [tokens(scenario.answers.at(place), scenario.longest) for place in places]
    prompt = tokens(scenario.prompts.at(0.5))
    seconds = scenario.trainer_costs().train(length + prompt for length in lengths)
    return seconds / sum(lengths)
