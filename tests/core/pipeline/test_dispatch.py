from __future__ import annotations

import asyncio

import pytest
from attrs import evolve

from areal_core.contexts import Place, WorkerSpec
from areal_core.data import Sampling, TaskRef, TrajectoryGroup
from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.dispatch import Dispatcher, GroupFailed, Patience, TooManyFailed
from areal_core.pipeline.events import Events
from areal_core.pipeline.pool import Pool
from areal_core.workers.plans import GroupOrder

ORDER = GroupOrder(0, TaskRef("e", "train", 0), (0, 1), Sampling(), seed=1)


def remote(kind="ComponentError", text="reward/x: told to fail", code=1):
    return RemoteError("rollout-0", "run_group", Remote(kind, text, exit_code=code))


class Worker:
    """Answers `run_group` with what `script` holds next, and after that with the engine it was told to use."""

    def __init__(self, name, script=()):
        self.name, self.address, self.script, self.calls = name, f"at {name}", list(script), []
        self.killed, self.gone = False, asyncio.Event()

    async def lost(self):
        await self.gone.wait()
        return "hung: not heard of for 60 s"

    async def call(self, method, *args, timeout=None):
        self.calls.append((method, *args))
        if self.script:
            answer = self.script.pop(0)
            if isinstance(answer, Exception):
                raise answer
            async with asyncio.timeout(timeout):
                await answer
        return args[0].engine if method == "run_group" else None

    def kill(self):
        self.killed = True


def make(rollouts, engines, swapping=lambda: False, patience=None):
    condition, events = Condition(), []
    pools = []
    for kind, workers in (("engine", engines), ("rollout", rollouts)):
        pool = Pool([WorkerSpec(worker.name, kind, Place()) for worker in workers], condition)
        for seat, worker in zip(pool.seats, workers, strict=True):
            seat.held, seat.ready = worker, True
        pools.append(pool)
    patience = patience or Patience(retries=2, losses=3, max_failed_share=0.2)
    return Dispatcher(*pools, swapping, condition, Events(events.append), patience), pools, condition, events


def test_work_goes_to_the_lightest_worker_and_engine(virtually):
    async def main():
        rollouts, engines = [Worker("r0"), Worker("r1")], [Worker("e0"), Worker("e1")]
        dispatcher, (engine_pool, rollout_pool), *_ = make(rollouts, engines)
        engine_pool.seats[0].load, rollout_pool.seats[0].load = 3, 5
        return await dispatcher.run(ORDER), len(rollouts[1].calls)

    assert virtually(main()) == ("at e1", 1)


def test_load_is_counted_in_trajectories_while_a_group_is_under_way(virtually):
    async def main():
        dispatcher, (engines, rollouts), *_ = make([Worker("r0", [asyncio.sleep(5)])], [Worker("e0")])
        running = asyncio.ensure_future(dispatcher.run(ORDER))
        await asyncio.sleep(1)
        loads = engines.seats[0].load, rollouts.seats[0].load
        await running
        return loads, engines.seats[0].load

    assert virtually(main()) == ((2, 2), 0)


def test_nothing_is_sent_during_a_swap(virtually):
    async def main():
        swapping = [True]
        rollout = Worker("r0")
        dispatcher, _, condition, _ = make([rollout], [Worker("e0")], lambda: swapping[0])
        running = asyncio.ensure_future(dispatcher.run(ORDER))
        await asyncio.sleep(1)
        sent = len(rollout.calls)
        swapping[0] = False
        condition.changed()
        await running
        return sent, len(rollout.calls)

    assert virtually(main()) == (0, 1)


def test_a_failed_rollout_is_tried_again(virtually):
    again = []

    async def main():
        dispatcher, _, _, events = make([Worker("r0", [remote(), remote()])], [Worker("e0")])
        return await dispatcher.run(ORDER, lambda: again.append(1)), [event.kind for event in events]

    assert virtually(main()) == ("at e0", ["group-retried", "group-retried"])
    assert len(again) == 2


def test_a_rollout_that_keeps_failing_is_given_up_with_its_error(virtually):
    async def main():
        dispatcher, _, _, events = make([Worker("r0", [remote()] * 3)], [Worker("e0")])
        with pytest.raises(GroupFailed) as failure:
            await dispatcher.run(ORDER)
        return failure.value, events[-1].kind

    failure, last = virtually(main())
    assert "told to fail" in str(failure.cause)
    assert (failure.fatal, last) == (None, "group-failed")


def test_too_many_failures_among_the_recent_groups_are_fatal(virtually):
    async def main():
        patience = Patience(retries=0, losses=0, max_failed_share=0.04)
        dispatcher, *_ = make([Worker("r0", [remote()] * 3)], [Worker("e0")], patience=patience)
        fatal = []
        for _ in range(3):
            with pytest.raises(GroupFailed) as failure:
                await dispatcher.run(ORDER)
            fatal.append(failure.value.fatal)
        return fatal

    first, second, third = virtually(main())
    assert (first, second) == (None, None)
    assert isinstance(third, TooManyFailed)
    assert "3 of the last 50 groups failed" in str(third)


def test_what_the_user_gave_wrong_is_fatal_at_once(virtually):
    async def main():
        rollout = Worker("r0", [remote("InputError", "data.jsonl:7: no answer", code=2)])
        dispatcher, *_ = make([rollout], [Worker("e0")])
        with pytest.raises(GroupFailed) as failure:
            await dispatcher.run(ORDER)
        return failure.value.fatal, len(rollout.calls)

    fatal, calls = virtually(main())
    assert "data.jsonl:7" in str(fatal)
    assert calls == 1


def test_a_lost_rollout_worker_gets_no_more_work(virtually):
    async def main():
        dispatcher, (_, pool), *_ = make(
            [Worker("r0", [WorkerLost("r0", "killed")]), Worker("r1")], [Worker("e0")]
        )  # fmt: skip
        return await dispatcher.run(ORDER), [seat.name for seat in pool.ready]

    assert virtually(main()) == ("at e0", ["r1"])


def test_an_engine_that_cannot_be_reached_is_asked_before_it_gets_more_work(virtually):
    async def main():
        dead = Worker("e0", [WorkerLost("e0", "killed")])
        dispatcher, (pool, _), *_ = make(
            [Worker("r0", [remote("WorkerLost", "engine e0 is gone")])], [dead, Worker("e1")]
        )
        return await dispatcher.run(ORDER), [seat.name for seat in pool.ready]

    assert virtually(main()) == ("at e1", ["e1"])


def test_an_engine_that_failed_is_ended_and_the_group_has_only_lost_it(virtually):
    async def main():
        broken = Worker("e0", [remote(text="engine/x: version: it failed before: out of memory")])
        patience = Patience(retries=0, losses=3, max_failed_share=0.0)
        rollout = Worker("r0", [remote(text="engine/x: generate: out of memory")])
        dispatcher, (pool, rollouts), *_ = make([rollout], [broken, Worker("e1")], patience=patience)
        answer = await dispatcher.run(ORDER)
        ready = [seat.name for seat in (*pool.ready, *rollouts.ready)]
        return answer, broken.killed, ready, pool.seats[0].fault

    assert virtually(main()) == ("at e1", True, ["e1", "r0"], "engine/x: version: it failed before: out of memory")


def test_a_group_that_failed_by_itself_leaves_its_engine_alone(virtually):
    async def main():
        engine = Worker("e0")
        dispatcher, (pool, _), *_ = make([Worker("r0", [remote()])], [engine])
        await dispatcher.run(ORDER)
        return engine.calls, engine.killed, [seat.name for seat in pool.ready]

    assert virtually(main()) == ([("version",)], False, ["e0"])


def test_a_group_is_taken_back_from_an_engine_whose_machine_is_gone(virtually):
    """Nobody closes the connection between its rollout worker and it, so that the rollout worker notices nothing."""

    async def main():
        rollout, gone = Worker("r0", [asyncio.sleep(1e6)]), Worker("e0")
        dispatcher, (engines, _), _, events = make([rollout], [gone, Worker("e1")])
        running = asyncio.ensure_future(dispatcher.run(evolve(ORDER, timeout=3600.0)))
        await asyncio.sleep(1)
        engines.seats[0].lose(gone)
        gone.gone.set()
        answer = await running
        told = [(event.kind, event.level, event.data["error"]) for event in events]
        return answer, asyncio.get_running_loop().time(), told, [seat.load for seat in engines.seats], rollout.killed

    told = [("group-retried", "info", str(WorkerLost("e0", "hung: not heard of for 60 s")))]
    assert virtually(main()) == ("at e1", 61.0, told, [0, 0], False)


def test_a_group_that_needs_its_lost_engine_no_more_comes_back(virtually):
    """It may wait for its verdict alone."""

    async def main():
        engine = Worker("e0")
        dispatcher, _, _, events = make([Worker("r0", [asyncio.sleep(30)])], [engine])
        running = asyncio.ensure_future(dispatcher.run(ORDER))
        await asyncio.sleep(1)
        engine.gone.set()
        return await running, asyncio.get_running_loop().time(), events

    assert virtually(main()) == ("at e0", 30.0, [])


def test_losses_are_no_failures_of_the_group_but_not_endless_either(virtually):
    async def main():
        patience = Patience(retries=0, losses=3, max_failed_share=1.0)
        rollout = Worker("r0", [remote("GenerationAborted")] * 4)
        dispatcher, *_ = make([rollout], [Worker("e0")], patience=patience)
        with pytest.raises(GroupFailed):
            await dispatcher.run(ORDER)
        return len(rollout.calls)

    assert virtually(main()) == 4


def test_demonstrations_need_no_engine(virtually):
    async def main():
        dispatcher, (engines, _), *_ = make([Worker("r0")], [Worker("e0")])
        engines.seats[0].ready = False
        order = GroupOrder(0, TaskRef("e", "train", 0), (0,), Sampling(), seed=1, mode="demonstrate")
        return await dispatcher.run(order)

    assert virtually(main()) == ""


def test_a_cancelled_group_is_not_sent_again_when_its_worker_dies_at_that_moment(virtually):
    async def main():
        async def dies():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                raise WorkerLost("r0", "killed") from None

        dispatcher, *_ = make([Worker("r0", [dies()])], [Worker("e0")])
        running = asyncio.ensure_future(dispatcher.run(ORDER))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait({running}, timeout=10)
        return running.cancelled()

    assert virtually(main())


def test_a_failed_group_is_tried_by_others(virtually):
    async def main():
        rollouts, engines = [Worker("r0", [remote()]), Worker("r1")], [Worker("e0"), Worker("e1")]
        dispatcher, *_ = make(rollouts, engines)
        answer = await dispatcher.run(ORDER)
        return answer, [call[0] for call in rollouts[1].calls]

    assert virtually(main()) == ("at e1", ["run_group"])


def test_a_group_that_is_away_too_long_ends_its_worker(virtually):
    async def main():
        stuck = Worker("r0", [asyncio.sleep(1e6)])
        dispatcher, (_, rollouts), _, events = make([stuck, Worker("r1")], [Worker("e0")])
        answer = await dispatcher.run(evolve(ORDER, timeout=30.0))
        clock = asyncio.get_running_loop().time()
        return answer, clock, stuck.killed, rollouts.seats[0].fault, [event.kind for event in events]

    answer, clock, killed, fault, kinds = virtually(main())
    assert (answer, clock, killed, kinds) == ("at e0", 90.0, True, ["group-retried"])
    assert fault == "hung: e/train/0 was not back 60 s after its time-out of 30 s"


def test_groups_of_workers_that_hang_are_tried_alone_from_the_second_time_on(virtually):
    """The one at fault fails; those that were with it do not."""

    class Host:
        name = address = "r"

        def __init__(self):
            self.here, self.gone = set(), asyncio.Event()

        async def call(self, method, order, timeout=None):
            self.here.add(order.task.index)
            if 3 in self.here:
                self.gone.set()
            gone = asyncio.ensure_future(self.gone.wait())
            await asyncio.wait({gone}, timeout=5)
            hung = gone.done()
            gone.cancel()
            self.here.discard(order.task.index)
            if hung:
                await asyncio.sleep(60)
                self.gone.clear()
                raise WorkerLost("r", "hung: no heartbeat for 60 s")
            return order.task.index

        def kill(self): ...

    async def restart(seat, condition):
        while True:
            await asyncio.sleep(1)
            seat.ready = True
            condition.changed()

    async def main():
        dispatcher, (_, rollouts), condition, _ = make([Host()], [Worker("e0")])
        restarting = asyncio.ensure_future(restart(rollouts.seats[0], condition))
        orders = [evolve(ORDER, task=TaskRef("e", "train", index)) for index in range(6)]
        outcomes = await asyncio.gather(*map(dispatcher.run, orders), return_exceptions=True)
        restarting.cancel()
        return [type(outcome).__name__ for outcome in outcomes]

    assert virtually(main()) == ["int", "int", "int", "GroupFailed", "int", "int"]


def test_groups_that_begin_together_are_spread_even_when_each_is_watched(virtually):
    """A watched order begins a turn of the loop after its engine was chosen."""

    async def main():
        rollouts, engines = [Worker("r0")], [Worker(f"e{index}") for index in range(4)]
        dispatcher, *_ = make(rollouts, engines)
        dispatcher._hedges._pace.due = lambda size: 60.0
        results = await asyncio.gather(*(dispatcher.run(ORDER) for _ in range(8)))
        return sorted(results)

    assert virtually(main()) == sorted(f"at e{index}" for index in range(4) for _ in range(2))


def test_what_was_begun_is_sent_once_and_a_further_try_begins_from_nothing(virtually):
    begun = TrajectoryGroup(0, ORDER.task, ())
    rollout = Worker("r0", [remote()])

    async def main():
        dispatcher, *_ = make([rollout], [Worker("e0")])
        await dispatcher.run(evolve(ORDER, begun=begun))

    virtually(main())
    assert [order.begun for _, order in rollout.calls if isinstance(order, GroupOrder)] == [begun, None]
