from __future__ import annotations

import asyncio

import pytest

from areal_core.contexts import Place, WorkerSpec
from areal_core.data import WeightOffer, WeightVersion
from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.pipeline.background import Background, Stop
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.events import Events
from areal_core.pipeline.pool import Pool
from areal_core.pipeline.trace import Trace
from areal_core.pipeline.weights import Route, Weights


class Worker:
    """Writes down its calls; `answers` may hold a coroutine function or an exception for a method."""

    def __init__(self, name, diary, **answers):
        self.name, self.diary, self.answers, self.killed, self.broken = name, diary, answers, False, False

    async def call(self, method, *args, timeout=None):
        self.diary.append((self.name, method, *(str(getattr(a, "version", a)) for a in args)))
        answer = self.answers.get(method)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            await answer()
        if method == "publish":
            return WeightOffer(args[0], "mock", "tensors")
        return None

    def kill(self):
        self.killed = True


def make(trainer=None, engines=(), collective=False, diary=None):
    """Weights, the pool and what happened."""
    diary = diary if diary is not None else []
    condition = Condition()
    stop = Stop(condition)
    pool = Pool([WorkerSpec(engine.name, "engine", Place()) for engine in engines], condition)
    for seat, engine in zip(pool.seats, engines, strict=True):
        seat.held, seat.ready = engine, True
    events, told = [], []
    weights = Weights(
        trainer or Worker("trainer", diary), pool, Route("mock", "tensors", collective), Background(stop), condition,
        Events(events.append), Trace(asyncio.get_running_loop().time), told.append,
    )  # fmt: skip
    return weights, pool, stop, events, told


def error(text="broken"):
    return RemoteError("engine", "prepare", Remote("TransportError", text))


V1, V2 = WeightVersion(0, 1), WeightVersion(0, 2)


def test_every_engine_has_fetched_a_version_before_any_swaps(virtually):
    diary = []

    async def main():
        async def slow():
            await asyncio.sleep(5)

        engines = [Worker("a", diary), Worker("b", diary, prepare=slow)]
        weights, *_ = make(engines=engines, diary=diary)
        await weights.publish(V1)
        await weights.settled()

    virtually(main())
    methods = [method for _, method, *_ in diary]
    assert methods == ["publish", "prepare", "prepare", "commit", "commit"]


def test_publishing_returns_before_the_engines_have_the_version(virtually):
    async def main():
        async def slow():
            await asyncio.sleep(5)

        weights, *_ = make(engines=[Worker("a", [], prepare=slow)])
        await weights.publish(V1)
        return asyncio.get_running_loop().time(), weights.version

    assert virtually(main()) == (0.0, None)


def test_versions_follow_one_another(virtually):
    diary = []

    async def main():
        weights, *_, told = make(engines=[Worker("a", diary)], diary=diary)
        await weights.publish(V1)
        await weights.publish(V2)
        await weights.settled()
        await asyncio.sleep(0)
        return told

    assert virtually(main()) == [V1, V2]
    steps = [(method, version) for _, method, version in diary]
    assert steps == [
        ("publish", "0.1"), ("prepare", "0.1"), ("commit", "0.1"),
        ("publish", "0.2"), ("prepare", "0.2"), ("commit", "0.2"), ("release", "0.1"),
    ]  # fmt: skip


def test_a_version_that_cannot_be_freed_is_told_and_ends_nothing(virtually):
    async def main():
        trainer = Worker("trainer", [], release=RemoteError("trainer", "release", Remote("OSError", "not empty")))
        weights, _, stop, events, told = make(trainer, engines=[Worker("a", [])])
        await weights.publish(V1)
        await weights.publish(V2)
        await weights.settled()
        await asyncio.sleep(1)
        return stop.asked, [event.kind for event in events], told

    assert virtually(main()) == (None, ["release-failed"], [V1, V2])


def test_admission_is_held_for_the_swap_alone(virtually):
    seen = []

    async def main():
        weights, *_ = make(engines=[Worker("a", [], prepare=lambda: look("prepare"), commit=lambda: look("commit"))])

        async def look(what):
            seen.append((what, weights.swapping))

        await weights.publish(V1)
        await weights.settled()
        seen.append(("after", weights.swapping))

    virtually(main())
    assert seen == [("prepare", False), ("commit", True), ("after", False)]


@pytest.mark.parametrize("broken", [False, True])
def test_a_version_that_no_engine_can_fetch_or_none_of_a_broken_trainer_leaves_every_engine_as_it_was(
    virtually, broken
):
    diary = []

    async def main():
        trainer = Worker("trainer", diary)
        trainer.broken = broken
        engines = [Worker("a", diary, prepare=None if broken else error()), Worker("b", diary, prepare=error())]
        weights, pool, stop, events, told = make(trainer, engines=engines, diary=diary)
        await weights.publish(V1)
        with pytest.raises(RemoteError, match="broken"):
            await weights.settled()
        await asyncio.sleep(0)
        assert [seat.name for seat in pool.ready] == ["a", "b"]
        return stop.cause, len(events), told, weights.version

    cause, failures, told, version = virtually(main())
    assert isinstance(cause, RemoteError)
    assert (failures, told, version) == (3 if broken else 6, [], None)
    assert {(name, method) for name, method, _ in diary if method in ("commit", "discard")} == {
        ("a", "discard"), ("b", "discard")
    }  # fmt: skip


def test_an_engine_that_alone_cannot_fetch_a_version_is_ended_and_the_others_go_on(virtually):
    async def main():
        engines = [Worker("a", []), Worker("b", [], prepare=error("no space left in /dev/shm"))]
        weights, pool, stop, events, told = make(engines=engines)
        await weights.publish(V1)
        await weights.settled()
        await asyncio.sleep(0)
        assert (stop.asked, len(events), told) == (None, 3, [V1])
        return [engine.killed for engine in engines], [seat.name for seat in pool.ready], pool.seats[1].fault

    fault = "it could not fetch version 0.1: no space left in /dev/shm"
    assert virtually(main()) == ([False, True], ["a"], fault)


def test_an_engine_that_fails_its_swap_is_ended_and_serves_no_more(virtually):
    async def main():
        engines = [Worker("a", []), Worker("b", [], commit=error())]
        weights, pool, _, _, told = make(engines=engines)
        await weights.publish(V1)
        await weights.settled()
        killed = [engine.killed for engine in engines]
        return killed, [seat.name for seat in pool.ready], told, pool.seats[1].fault

    assert virtually(main()) == ([False, True], ["a"], [V1], "it failed to take version 0.1: broken")


def test_a_replacement_that_starts_before_the_swap_is_left_alone_until_it_joins(virtually):
    diary = []

    async def main():
        async def slow():
            await asyncio.sleep(5)

        lost = Worker("b", diary, commit=WorkerLost("b", "killed"))
        weights, pool, *_ = make(engines=[Worker("a", diary, prepare=slow), lost], diary=diary)
        new = Worker("new", diary)
        await weights.publish(V1)
        await asyncio.sleep(1)
        pool.seats[1].ready, pool.seats[1].held = False, new
        await weights.join(pool.seats[1])
        await weights.settled()
        return new.killed, [seat.name for seat in pool.ready]

    assert virtually(main()) == (False, ["a", "b"])
    assert [call for call in diary if call[0] == "new"] == [("new", "prepare", "0.1"), ("new", "commit", "0.1")]


def test_an_engine_that_is_lost_meanwhile_does_not_hold_up_the_others(virtually):
    async def main():
        engines = [Worker("a", []), Worker("b", [], prepare=WorkerLost("b", "killed"))]
        weights, *_, told = make(engines=engines)
        await weights.publish(V1)
        await weights.settled()
        return told

    assert virtually(main()) == [V1]


def test_an_engine_that_joins_gets_the_current_version_before_it_serves(virtually):
    diary = []

    async def main():
        weights, pool, *_ = make(engines=[Worker("a", diary)], diary=diary)
        await weights.publish(V1)
        await weights.settled()
        pool.seats[0].ready = False
        pool.seats[0].held = Worker("new", diary)
        await weights.join(pool.seats[0])
        return pool.seats[0].ready

    assert virtually(main())
    assert diary[-2:] == [("new", "prepare", "0.1"), ("new", "commit", "0.1")]


def test_an_engine_joins_with_the_version_that_is_just_being_spread(virtually):
    diary = []

    async def main():
        async def slow():
            await asyncio.sleep(5)

        engines = [Worker("a", diary, prepare=slow), Worker("b", diary)]
        weights, pool, *_ = make(engines=engines, diary=diary)
        pool.seats[1].ready = False
        await weights.publish(V1)
        await asyncio.sleep(1)
        await weights.join(pool.seats[1])
        await weights.settled()

    virtually(main())
    assert [call for call in diary if call[0] == "b"] == [("b", "prepare", "0.1"), ("b", "commit", "0.1")]


def test_an_engine_that_takes_long_to_join_holds_up_neither_the_trainer_nor_the_others(virtually):
    diary = []

    async def main():
        async def slow():
            await asyncio.sleep(300)

        weights, pool, *_ = make(engines=[Worker("a", diary), Worker("late", diary, prepare=slow)], diary=diary)
        late = pool.seats[1]
        late.ready = False
        await weights.publish(V1)
        await weights.settled()
        joining = asyncio.ensure_future(weights.join(late))
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await weights.publish(V2)
        await weights.settled()
        took = asyncio.get_running_loop().time() - began
        await joining
        return took, late.ready

    assert virtually(main()) == (0.0, True)
    calls = [call[1:] for call in diary if call[0] == "late"]
    assert calls == [("prepare", "0.1"), ("discard", "0.1"), ("prepare", "0.2"), ("commit", "0.2")]


def test_an_engine_that_joins_while_others_fetch_the_next_version_swaps_with_them(virtually):
    diary = []

    async def main():
        async def slow():
            await asyncio.sleep(5)

        weights, pool, *_ = make(engines=[Worker("a", diary, prepare=slow), Worker("late", diary)], diary=diary)
        late = pool.seats[1]
        late.ready = False
        await weights.publish(V1)
        await weights.settled()
        await weights.publish(V2)
        await asyncio.sleep(1)
        await weights.join(late)
        joined = late.ready, str(weights.version)
        await weights.settled()
        return joined

    assert virtually(main()) == (True, "0.1")
    calls = [call[1:] for call in diary if call[0] == "late"]
    assert calls == [("prepare", "0.1"), ("commit", "0.1"), ("prepare", "0.2"), ("commit", "0.2")]


def test_a_collective_transport_sends_and_receives_at_the_same_time(virtually):
    async def main():
        arrived = asyncio.Barrier(2)
        trainer = Worker("trainer", [], publish=arrived.wait)
        weights, *_, told = make(trainer, [Worker("a", [], prepare=arrived.wait)], collective=True)
        async with asyncio.timeout(60):
            await weights.publish(V1)
        return told

    assert virtually(main()) == [V1]


def test_a_collective_exchange_that_fails_at_one_end_is_not_waited_for_at_the_others(virtually):
    async def main():
        before = asyncio.all_tasks()
        trainer = Worker("trainer", [], publish=asyncio.Event().wait)
        engines = [Worker("a", [], prepare=asyncio.Event().wait), Worker("b", [], prepare=error())]
        weights, *_, told = make(trainer, engines, collective=True)
        with pytest.raises(RemoteError, match="broken"):
            await weights.publish(V1)
        return weights.sound, weights.swapping, told, asyncio.all_tasks() - before

    assert virtually(main()) == (False, False, [], set())


def test_a_collective_exchange_does_not_begin_without_an_engine(virtually):
    diary = []

    async def main():
        weights, pool, *_ = make(engines=[Worker("a", diary), Worker("b", diary)], collective=True, diary=diary)
        pool.seats[1].ready = False
        with pytest.raises(WorkerLost, match="worker b: mock cannot go on without it"):
            await weights.publish(V1)
        return weights.sound, diary

    assert virtually(main()) == (True, [])


def test_a_collective_transport_refuses_an_engine_that_starts_later(virtually):
    async def main():
        weights, pool, *_ = make(engines=[Worker("a", [])], collective=True)
        await weights.publish(V1)
        pool.seats[0].ready = False
        await weights.join(pool.seats[0])

    with pytest.raises(WorkerLost, match="cannot take in an engine that starts later"):
        virtually(main())
