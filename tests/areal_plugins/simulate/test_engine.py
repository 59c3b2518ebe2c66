from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from areal_plugins.simulate.costs import EngineCosts, Reach
from areal_plugins.simulate.engine import Sequence, SimulatedEngine
from areal_plugins.simulate.hardware import Hardware
from areal_plugins.simulate.shape import Shape
from areal_plugins.testing.clock import run_virtually

SHAPE = Shape(1e6, 2, 64, 64)
REACH = Reach(prefill=1, decode=1, train=1, link=1, memory=1, step=0.5)


def costs(tokens: int = 10_000) -> EngineCosts:
    """An engine whose cache holds so many tokens; a step takes about half a second."""
    memory = SHAPE.weights + tokens * SHAPE.kv_bytes
    return EngineCosts(Hardware("slow", 1e9, 1e7, memory, 1e9, 1e9), SHAPE, REACH, 1)


async def play(engine: SimulatedEngine, sequences: list[tuple[float, int, int]]) -> list[float]:
    """When each ends, for (arrival, prompt, length)."""
    loop, ends, over = asyncio.get_running_loop(), {}, asyncio.Event()

    def submit(number: int, prompt: int, length: int) -> None:
        def ended(_: Sequence) -> None:
            ends[number] = loop.time()
            if len(ends) == len(sequences):
                over.set()

        engine.submit(Sequence(prompt, length, ended))

    for number, (arrival, prompt, length) in enumerate(sequences):
        if arrival:
            loop.call_at(arrival, submit, number, prompt, length)
        else:
            submit(number, prompt, length)
    await over.wait()
    return [ends[number] for number in range(len(sequences))]


def token_by_token(costs: EngineCosts, most: int, sequences: list[tuple[float, int, int]]) -> list[float]:
    """The same, one step at a time, for sequences that are all there at 0."""
    now, waiting, running, ends = 0.0, list(enumerate(sequences)), {}, {}
    while waiting or running:
        while waiting and len(running) < most:
            number, (_, prompt, length) = waiting.pop(0)
            now += costs.prefill(prompt)
            running[number] = [prompt, length]
        now += costs.step(len(running)) + costs.slope * sum(context for context, _ in running.values())
        for state in running.values():
            state[0], state[1] = state[0] + 1, state[1] - 1
        for number in [number for number, (_, left) in running.items() if not left]:
            ends[number] = now
            del running[number]
    return [ends[number] for number in range(len(sequences))]


def alone(most: int, sequences: list[tuple[float, int, int]], tokens: int = 10_000):
    async def main():
        engine = SimulatedEngine(costs(tokens), most, asyncio.get_running_loop())
        return await play(engine, sequences), engine

    return run_virtually(main())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.just(0.0), st.integers(1, 50), st.integers(1, 40)), min_size=1, max_size=8), st.integers(1, 4)
)
def test_events_a_change_give_the_times_of_a_simulation_token_by_token(sequences, most):
    ends, _ = alone(most, sequences)
    assert ends == pytest.approx(token_by_token(costs(), most, sequences), abs=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 50), st.integers(1, 40)), min_size=1, max_size=8))
def test_every_token_is_drawn_once_whenever_its_sequence_came(sequences):
    _, engine = alone(3, sequences)
    assert engine.tokens == sum(length for _, _, length in sequences)
    assert engine.running == engine.waiting == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.just(0.0), st.integers(1, 50), st.integers(1, 400)), min_size=2, max_size=6))
def test_a_cache_that_runs_full_sends_the_youngest_back_and_loses_no_token(sequences):
    _, engine = alone(6, sequences, tokens=500)
    assert engine.tokens == sum(length for _, _, length in sequences)


def interrupted(keep: bool):
    async def main():
        loop = asyncio.get_running_loop()
        engine = SimulatedEngine(costs(), 4, loop)
        done: list[Sequence] = []
        engine.submit(Sequence(10, 40, done.append))
        await asyncio.sleep(8.0)
        await engine.pause(keep)
        paused = loop.time()
        await asyncio.sleep(100.0)
        engine.load(1)
        engine.resume()
        engine.submit(Sequence(10, 5, done.append))
        await asyncio.sleep(1000.0)
        return paused, done, engine

    return run_virtually(main())


def test_a_kept_sequence_goes_on_under_the_new_weights_after_it_was_read_anew():
    paused, done, engine = interrupted(keep=True)
    assert paused == pytest.approx(8.0)
    longer = max(done, key=lambda sequence: sequence.length)
    assert [version for _, version in longer.stretches] == [0, 1]
    assert sum(tokens for tokens, _ in longer.stretches) == 40
    assert engine.prefilled == 10 + (10 + longer.stretches[0][0]) + 10


def test_without_keeping_an_update_waits_for_the_longest():
    paused, done, _ = interrupted(keep=False)
    assert paused > 8.0
    assert [sequence.stretches for sequence in done] == [[(40, 0)], [(5, 1)]]


@pytest.mark.parametrize(("flushes", "stretches"), [(False, [[(40, 0)], [(30, 1)]]), (True, [[(40, 0)], [(30, 0)]])])
def test_an_update_that_waits_does_so_for_the_queue_only_where_it_is_flushed(flushes, stretches):
    async def main():
        loop = asyncio.get_running_loop()
        engine = SimulatedEngine(costs(), 1, loop, flushes)
        done: list[Sequence] = []
        engine.submit(Sequence(10, 40, done.append))
        engine.submit(Sequence(10, 30, done.append))
        await asyncio.sleep(8.0)
        await engine.pause(keep=False)
        engine.load(1)
        engine.resume()
        await asyncio.sleep(1000.0)
        return [sequence.stretches for sequence in done]

    assert run_virtually(main()) == stretches


def test_an_update_does_not_wait_for_what_is_dropped_meanwhile():
    async def main():
        loop = asyncio.get_running_loop()
        engine = SimulatedEngine(costs(), 1, loop)
        endless = Sequence(10, 10_000, lambda sequence: None)
        engine.submit(endless)
        loop.call_at(3.0, engine.drop, [endless])
        await asyncio.sleep(1.0)
        await engine.pause(keep=False)
        return loop.time()

    assert run_virtually(main()) == pytest.approx(3.0)


def test_what_is_dropped_frees_its_place():
    async def main():
        engine = SimulatedEngine(costs(), 1, asyncio.get_running_loop())
        first = Sequence(10, 10_000, lambda sequence: None)
        engine.submit(first)
        await asyncio.sleep(3.0)
        engine.drop([first])
        return await play(engine, [(3.0, 10, 4)])

    assert run_virtually(main())[0] < 6.0
