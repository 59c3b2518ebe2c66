"""Workers that are lost before the run has begun, in whole runs on a virtual clock."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from areal_core.errors import RunFailed, WorkerLost

FEW = "training.max_steps=4"
TWO = "resources={train: {num_gpus: 2}, infer: {num_gpus: 2}, rollout: {cpus: 2}}"


def events(scene, kind):
    return [event.data for event in scene.log.events if event.kind == kind]


def trained(scene):
    return sorted(line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl"))


def losing(name, method, times=1):
    """Lose the worker `name` in its first calls of `method`; `start`: while it starts."""

    async def meddle(controller):
        executor, left = controller._executor, Counter({method: times})
        start = executor.start

        def strikes(asked):
            left[asked] -= 1
            return left[asked] >= 0

        async def start_some(spec):
            if spec.name == name and strikes("start"):
                raise WorkerLost(name, "exit code 1, before it could serve")
            worker = await start(spec)
            if spec.name == name:
                call = worker.call

                async def die(asked, *args, **options):
                    if strikes(asked):
                        asyncio.get_running_loop().call_later(0.01, worker.kill)
                        await worker.lost()
                    return await call(asked, *args, **options)

                worker.call = die
            return worker

        executor.start = start_some

    return meddle


WORKERS = [
    ("trainer", "start"),
    ("trainer", "materialize"),
    ("trainer", "setup"),
    ("engine-0", "start"),
    ("engine-0", "setup"),
    ("rollout-0", "start"),
    ("rollout-0", "setup"),
]


@pytest.mark.parametrize(("name", "method"), WORKERS)
def test_a_worker_that_is_lost_at_the_start_is_started_again(scene, name, method):
    assert scene.run(FEW, meddle=losing(name, method)).outcome == "done"
    assert [data["worker"] for data in events(scene, "worker-lost")] == [name]
    assert [(data["worker"], data["restarts"]) for data in events(scene, "worker-restarted")] == [(name, 1)]
    assert trained(scene) == list(range(16))


@pytest.mark.parametrize("method", ["start", "setup"])
@pytest.mark.parametrize("name", ["trainer-1", "engine-1", "rollout-1"])
def test_so_is_one_of_several(scene, name, method):
    scene.run(FEW, TWO, meddle=losing(name, method, times=2))
    assert [data["restarts"] for data in events(scene, "worker-restarted")] == [2]
    assert trained(scene) == list(range(16))


@pytest.mark.parametrize(("name", "method"), WORKERS)
def test_one_that_never_comes_up_fails_the_run_with_its_last_words(scene, name, method):
    words = "exit code 1, before it could serve" if method == "start" else "killed"
    with pytest.raises(RunFailed, match=f"worker {name}: .*{words}; it was restarted 3 times before"):
        scene.run(FEW, meddle=losing(name, method, times=100))
    assert len(events(scene, "worker-lost")) == 4


def test_a_run_begins_without_an_engine_that_never_comes_up_where_there_are_others(scene):
    assert scene.run(FEW, TWO, meddle=losing("engine-1", "setup", times=100)).outcome == "done"
    assert [data["worker"] for data in events(scene, "worker-given-up")] == ["engine-1"]
    assert trained(scene) == list(range(16))


def test_restarts_at_the_start_wait_as_long_as_later_ones(scene):
    scene.run(FEW, "supervision.restart_backoff=20", meddle=losing("trainer", "materialize", times=3))
    assert scene.lines("timings.jsonl")[0]["elapsed"] > 60


def test_one_that_does_not_serve_in_time_hangs_and_is_started_again(scene):
    fault = "executor.mock.faults=[{method: setup, kind: hang, call: 2}]"
    scene.run(FEW, fault, "supervision.start_timeout=30")
    assert [data["reason"] for data in events(scene, "worker-lost")] == ["hung: it did not serve within 30 s"]
    assert trained(scene) == list(range(16))


@pytest.mark.parametrize("call", [1, 2, 3])
def test_what_a_worker_raises_at_the_start_fails_the_run_at_once(scene, call):
    with pytest.raises(RunFailed, match="told to fail"):
        scene.run(FEW, f"executor.mock.faults=[{{method: setup, call: {call}}}]")
    assert not events(scene, "worker-restarted")


def test_a_stop_while_a_worker_is_awaited_again_ends_the_run(scene):
    async def meddle(controller):
        await losing("engine-0", "start", times=3)(controller)
        await asyncio.sleep(50)
        controller.stop("enough")

    summary = scene.run(FEW, "supervision.restart_backoff=100", meddle=meddle)
    assert (summary.outcome, summary.steps) == ("stopped", 0)
