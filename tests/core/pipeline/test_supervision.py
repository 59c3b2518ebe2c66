"""Workers that are lost, hang, are slow or keep failing, in whole runs on a virtual clock."""

from __future__ import annotations

import asyncio
import errno
from itertools import pairwise

import pytest

from areal_core.errors import RunFailed
from areal_core.pipeline.supervise import Persistence
from areal_core.workers.plans import Health, Note
from areal_plugins.testing.mocks.executor import PacedWorker

SLOW = "inference.mock.token_seconds=0.1"
TWO = "resources={infer: {num_gpus: 2}, rollout: {cpus: 2}}"


def seat(controller, name):
    crew = controller._crew
    return next(seat for seat in (*crew.engines.seats, *crew.rollouts.seats) if seat.name == name)


def trained(scene):
    return sorted(line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl"))


def events(scene, kind):
    return [event for event in scene.log.events if event.kind == kind]


def at_step(step, act):
    """Do something to the controller once so many steps are done."""

    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= step)
        await act(controller)

    return meddle


def silent(worker):
    """Let a worker answer nothing any more, as one that was stopped."""

    async def call(method, *args, timeout=None):
        async with asyncio.timeout(timeout):
            return await worker._while_it_lives(asyncio.get_running_loop().create_future())

    worker.call = call


def silencing(name, step=3):
    async def act(controller):
        silent(seat(controller, name).worker)

    return at_step(step, act)


async def kill_whenever_ready(controller, name, times):
    for _ in range(times):
        await controller._run.condition.until(lambda: seat(controller, name).ready)
        seat(controller, name).worker.kill()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("name", ["engine-0", "rollout-1"])
def test_a_worker_that_answers_nothing_hangs_and_is_replaced(scene, name):
    scene.run(SLOW, TWO, meddle=silencing(name))
    lost = events(scene, "worker-lost")
    assert [(event.data["worker"], event.data["how"]) for event in lost] == [(name, "hung")]
    assert lost[0].data["reason"] == "hung: no answer for 60 s"
    assert trained(scene) == list(range(80))


def test_a_worker_that_is_killed_is_dead(scene):
    async def act(controller):
        seat(controller, "engine-0").worker.kill()

    scene.run(SLOW, TWO, meddle=at_step(3, act))
    assert [event.data["how"] for event in events(scene, "worker-lost")] == ["dead"]


def test_all_engines_may_hang_at_once(scene):
    async def act(controller):
        for engine in controller._crew.engines.seats:
            silent(engine.worker)

    scene.run(SLOW, TWO, meddle=at_step(3, act))
    assert trained(scene) == list(range(80))


def test_a_run_goes_on_with_fewer_engines_once_one_is_restarted_too_often(scene):
    async def act(controller):
        await kill_whenever_ready(controller, "engine-1", 4)

    scene.run(SLOW, TWO, meddle=at_step(3, act))
    given_up = events(scene, "worker-given-up")
    assert [(event.data["worker"], event.data["others"]) for event in given_up] == [("engine-1", 1)]
    assert trained(scene) == list(range(80))


def test_the_last_engine_that_is_given_up_fails_the_run(scene):
    async def act(controller):
        await kill_whenever_ready(controller, "engine-1", 2)
        await kill_whenever_ready(controller, "engine-0", 2)

    with pytest.raises(RunFailed, match="worker engine-0: killed; it was restarted 1 times before"):
        scene.run(SLOW, TWO, "supervision.max_restarts=1", meddle=at_step(3, act))


def test_a_rollout_worker_that_is_hung_again_and_again_is_not_given_up(scene):
    """What it plays answers for that."""

    async def act(controller):
        for _ in range(3):
            await controller._run.condition.until(lambda: seat(controller, "rollout-0").ready)
            silent(seat(controller, "rollout-0").worker)
            await controller._run.condition.until(lambda: not seat(controller, "rollout-0").ready)

    options = "supervision={max_restarts: 1, heartbeat_timeout: 4, health_every: 1, task_retries: 5}"
    assert scene.run(SLOW, options, meddle=at_step(3, act)).outcome == "done"
    assert [event.data["how"] for event in events(scene, "worker-lost")] == ["hung"] * 3


def test_restarts_in_a_row_wait_longer_and_longer():
    persistence = Persistence(backoff=2.0)
    assert [persistence.wait(restart) for restart in (1, 2, 3, 4, 9)] == [0.0, 2.0, 4.0, 8.0, 60.0]


def test_a_worker_that_is_killed_again_and_again_comes_back_later_each_time(scene):
    times = []

    async def act(controller):
        for _ in range(3):
            await controller._run.condition.until(lambda: seat(controller, "engine-0").ready)
            times.append(asyncio.get_running_loop().time())
            seat(controller, "engine-0").worker.kill()
            await asyncio.sleep(0.01)
        await controller._run.condition.until(lambda: seat(controller, "engine-0").ready)
        times.append(asyncio.get_running_loop().time())

    scene.run(SLOW, "supervision.restart_backoff=5", meddle=at_step(3, act))
    first, second, third = (after - before for before, after in pairwise(times))
    assert first < 1
    assert 5 <= second < 6
    assert 10 <= third < 11


def test_restarts_before_a_long_service_do_not_count(scene):
    async def act(controller):
        for _ in range(6):
            await controller._run.condition.until(lambda: seat(controller, "engine-0").ready)
            await asyncio.sleep(20)
            seat(controller, "engine-0").worker.kill()
            await asyncio.sleep(0.01)

    options = "supervision={max_restarts: 1, forgive_after: 15}"
    assert scene.run(SLOW, options, "training.max_steps=40", meddle=at_step(1, act)).outcome == "done"
    assert len(events(scene, "worker-restarted")) >= 3


def test_a_worker_that_never_becomes_ready_is_restarted(scene):
    async def act(controller):
        seat(controller, "engine-0").worker.kill()

    fault = "executor.mock.faults=[{method: setup, kind: hang, call: 4}]"
    scene.run(SLOW, fault, "supervision.start_timeout=30", meddle=at_step(3, act))
    assert "hung: it did not serve within 30 s" in events(scene, "worker-lost")[1].data["reason"]
    assert trained(scene) == list(range(80))


@pytest.mark.parametrize("method", ["prepare", "commit"])
def test_an_engine_that_hangs_at_an_update_holds_nobody_up(scene, method):
    fault = f"executor.mock.faults=[{{method: {method}, kind: hang, call: 6}}]"
    scene.run(SLOW, TWO, fault, "supervision.update_timeout=20")
    assert f"hung: it did not {method} the weights within 20 s" in events(scene, "worker-lost")[0].data["reason"]
    assert trained(scene) == list(range(80))


def test_a_group_that_never_comes_back_ends_its_worker_and_fails_alone(scene, monkeypatch):
    """Its worker answers whatever else it is asked, and heeds no time-out of its own."""
    call = PacedWorker.call

    async def stuck(self, method, *args, timeout=None):
        if method != "run_group" or args[0].task.index != 7:
            return await call(self, method, *args, timeout=timeout)
        async with asyncio.timeout(timeout):
            return await self._while_it_lives(asyncio.get_running_loop().create_future())

    monkeypatch.setattr(PacedWorker, "call", stuck)
    scene.run(SLOW, TWO, "supervision={rollout_timeout: 60, straggler_factor: null}")
    failed = events(scene, "group-failed")
    assert [event.data["task"] for event in failed] == ["numbers/train/7"]
    assert "hung: numbers/train/7 was not back 60 s after its time-out of 60 s" in failed[0].data["error"]
    assert [event.data["how"] for event in events(scene, "worker-lost")] == ["hung"] * 3
    assert trained(scene) == [sequence for sequence in range(81) if sequence != 7]


def test_an_environment_of_its_own_time_out_is_retried_elsewhere_and_given_up(scene):
    scene.run("environments=[{type: mock, name: numbers, rollout_timeout: 40, reward: mock, "
              "latency: {run: {distribution: heavy-tail, least: 1, exponent: 1.2}}}]",
              "supervision.straggler_factor=null", "supervision.max_failed_share=1")  # fmt: skip
    assert all("not done after 40 s" in event.data["error"] for event in events(scene, "group-retried"))
    assert events(scene, "group-retried")


def test_a_reward_that_takes_too_long_is_named(scene):
    environments = (
        "environments=[{type: mock, name: numbers, reward_timeout: 5, "
        "reward: {type: mock, faults: [{method: score, kind: hang, call: 3}]}}]"
    )
    scene.run(environments)
    assert "reward/mock: score numbers/train/" in events(scene, "group-retried")[0].data["error"]
    assert "no verdict within 5 s" in events(scene, "group-retried")[0].data["error"]


def test_what_workers_have_to_say_becomes_events(scene, monkeypatch):
    notes = [Note("memory-pressure", "91% of its memory was in use", "warning", {"before": 0.91})]

    async def health(self):
        return Health(tuple(notes.pop() for _ in notes[:1]))

    monkeypatch.setattr("areal_core.workers.engine.EngineService.health", health)
    scene.run(SLOW)
    said = events(scene, "memory-pressure")
    assert [(event.message, event.data) for event in said] == [
        ("engine-0: 91% of its memory was in use", {"worker": "engine-0", "before": 0.91})
    ]


def test_a_group_that_takes_far_longer_than_its_peers_is_rolled_out_elsewhere_and_counts_once(scene, monkeypatch):
    call, late, cancelled = PacedWorker.call, [40], []

    async def slow(self, method, *args, timeout=None):
        if method == "run_group" and args[0].task.index in late:
            late.clear()
            try:
                await asyncio.sleep(3000)
            except asyncio.CancelledError:
                cancelled.append(args[0].task.index)
                raise
        return await call(self, method, *args, timeout=timeout)

    monkeypatch.setattr(PacedWorker, "call", slow)
    scene.run(SLOW, TWO)
    hedged = events(scene, "group-hedged")
    assert [event.data["task"] for event in hedged] == ["numbers/train/40"]
    assert hedged[0].data["due"] >= 30
    assert set(hedged[0].data["first"]).isdisjoint(hedged[0].data["second"])
    assert cancelled == [40]
    assert trained(scene) == list(range(80))
    assert scene.lines("timings.jsonl")[-1]["elapsed"] < 400


def test_an_engine_that_is_slow_is_named_and_its_groups_are_rolled_out_elsewhere(scene):
    async def act(controller):
        engine = seat(controller, "engine-1").worker._inner._host.service._live.engine
        from attrs import evolve

        engine._options = evolve(engine._options, token_seconds=20.0)

    scene.run(SLOW, TWO, "supervision.straggler_factor=2", "training.max_steps=40", meddle=at_step(10, act))
    assert {event.data["worker"] for event in events(scene, "worker-slow")} >= {"engine-1"}
    assert all(event.data["second"][0] == "engine-0" for event in events(scene, "group-hedged"))
    assert trained(scene) == list(range(160))


def test_nothing_is_rolled_out_twice_in_a_debug_run(scene):
    options = "supervision={straggler_factor: 1.01, straggler_floor: 0}"
    scene.run(SLOW, TWO, options, debug=True)
    assert not events(scene, "group-hedged")


def test_a_trainer_rank_is_asked_how_it_is_as_well(scene, monkeypatch):
    notes = [Note("memory-pressure", "91% of its memory was in use", "warning", {"before": 0.91})]

    async def health(self):
        return Health(tuple(notes.pop() for _ in notes[:1]))

    monkeypatch.setattr("areal_core.workers.trainer.TrainerService.health", health)
    scene.run(SLOW)
    assert [event.data["worker"] for event in events(scene, "memory-pressure")] == ["trainer"]


def test_a_trainer_rank_that_answers_nothing_hangs_and_takes_its_group_back_to_the_checkpoint(scene):
    async def act(controller):
        silent(controller._crew.trainer.ranks[1])

    scene.run(SLOW, "resources={train: {num_gpus: 2}}", meddle=at_step(3, act))
    lost = [event.data for event in events(scene, "worker-lost")]
    assert [(data["worker"], data["how"]) for data in lost] == [("trainer", "hung")]
    assert lost[0]["reason"] == "hung: trainer-1: no answer for 60 s"
    assert trained(scene) == list(range(80))


@pytest.mark.parametrize("name", ["engine-0", "trainer"])
def test_a_restart_for_which_this_machine_has_no_means_is_tried_again(scene, name):
    async def act(controller):
        executor = controller._executor
        start, problems = executor.start, [OSError(errno.EMFILE, "Too many open files")]

        async def start_some(spec):
            if problems:
                raise problems.pop()
            return await start(spec)

        executor.start = start_some
        crew = controller._crew
        (crew.trainer.ranks[0] if name == "trainer" else seat(controller, name).worker).kill()

    scene.run(SLOW, meddle=at_step(3, act))
    assert trained(scene) == list(range(80))
    lost = [event.data["reason"] for event in events(scene, "worker-lost") if event.data["worker"] == name]
    assert len(lost) == 2
    assert "Too many open files" in lost[1]
