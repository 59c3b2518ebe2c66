from __future__ import annotations

import asyncio
import json

import pluggy
import pytest

from areal_core import ENTRY_POINT_GROUP, hookspecs
from areal_core.errors import RunFailed
from areal_core.hookspecs import hookimpl
from areal_core.pipeline.weights import Route
from areal_plugins.testing.mocks.engine import MockEngine

SLOW = "inference.mock.token_seconds=0.1"
ONCE = "supervision.max_restarts=0"


def seats(controller):
    crew = controller._crew
    return {seat.name: seat for seat in (*crew.engines.seats, *crew.rollouts.seats)}


def killing(*names, at=3, times=1):
    """Kill these workers once `at` steps are done, and again whenever they are back."""

    async def meddle(controller):
        run = controller._run
        for turn in range(times):
            await run.condition.until(lambda turn=turn: run.events.step >= at + turn)
            for name in names:
                await run.condition.until(lambda name=name: seats(controller)[name].ready)
                seats(controller)[name].worker.kill()
            await asyncio.sleep(0.5)

    return meddle


async def out_of_memory(*_request):
    """What `generate` of a broken engine does."""
    raise RuntimeError("out of memory")
    yield


def breaking(name, at=3):
    """Let an engine raise whatever it is asked, once `at` steps are done."""

    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= at)
        seats(controller)[name].worker._inner._host.service._live.engine.generate = out_of_memory

    return meddle


def trajectories(scene):
    return scene.lines("trajectories/steps-0000001-0000100.jsonl")


def trained(scene):
    return sorted(line["sequence"] for line in trajectories(scene))


@pytest.mark.parametrize("name", ["engine-0", "rollout-0"])
def test_a_worker_that_dies_is_replaced_and_its_groups_are_rolled_out_anew(scene, name):
    summary = scene.run(SLOW, meddle=killing(name))
    assert summary.outcome == "done"
    assert trained(scene) == list(range(80))
    assert {"worker-lost", "worker-restarted"} <= set(scene.log.kinds())


@pytest.mark.parametrize("name", ["engine-1", "rollout-1"])
def test_one_of_several_workers_may_die(scene, name):
    scene.run(SLOW, "resources={infer: {num_gpus: 2}, rollout: {cpus: 2}}", meddle=killing(name))
    assert trained(scene) == list(range(80))


def test_every_worker_but_the_trainer_may_die_at_once(scene):
    options = "resources={infer: {num_gpus: 2}, rollout: {cpus: 2}}"
    scene.run(SLOW, options, meddle=killing("engine-0", "engine-1", "rollout-0", "rollout-1", times=2))
    assert trained(scene) == list(range(80))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_rollout_worker_may_die_while_a_stage_begins(scene, workers):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 1)
        worker = seats(controller)["rollout-0"].worker
        call = worker.call

        async def die(method, *args, **options):
            if method == "setup":
                worker.kill()
            return await call(method, *args, **options)

        worker.call = die

    stages = "stages=[{name: a, training: {max_steps: 2}}, {name: b, training: {max_steps: 2}, "
    stages += "environments: [{name: others, type: mock, reward: mock}]}]"
    scene.run(stages, f"resources={{rollout: {{cpus: {workers}}}}}", meddle=meddle)
    assert {line["environment"] for line in trajectories(scene) if line["step"] > 2} == {"others"}
    assert scene.log.kinds().count("worker-restarted") == 1


def test_a_rollout_worker_that_hangs_while_a_stage_begins_is_replaced(scene):
    stages = "stages=[{name: a, training: {max_steps: 2}}, {name: b, training: {max_steps: 2}, "
    stages += "environments: [{name: others, type: mock, reward: mock}]}]"
    hang = "executor.mock.faults=[{method: setup, kind: hang, call: 4}]"
    scene.run(stages, hang, "supervision.start_timeout=60")
    assert {line["environment"] for line in trajectories(scene) if line["step"] > 2} == {"others"}
    (lost,) = [event.data["reason"] for event in scene.log.events if event.kind == "worker-lost"]
    assert lost == "hung: it was not set up for b within 60 s"


def test_an_engine_that_comes_back_serves_the_current_weights_only(scene):
    """The mock trainer refuses tokens of wrong weights, and the buffer tokens older than their admission."""
    scene.run(SLOW, "pipeline.max_staleness=1", "executor.mock.latency.start=3.5", meddle=killing("engine-0", times=2))
    assert max(line["lag/max"] for line in scene.lines("metrics.jsonl")) <= 1


@pytest.mark.parametrize("engines", [1, 2])
def test_an_engine_that_raises_is_replaced_and_fails_no_group(scene, engines):
    scene.run(SLOW, f"resources={{infer: {{num_gpus: {engines}}}}}", meddle=breaking("engine-0"))
    assert trained(scene) == list(range(80))
    assert scene.log.kinds().count("worker-restarted") == 1
    assert "group-failed" not in scene.log.kinds()


def test_an_engine_that_raises_is_replaced_in_a_debug_run(scene):
    scene.run(SLOW, debug=True, meddle=breaking("engine-0"))
    assert trained(scene) == list(range(80))
    assert "worker-restarted" in scene.log.kinds()


def test_an_engine_that_always_raises_fails_the_run_with_its_error(scene, monkeypatch):
    monkeypatch.setattr(MockEngine, "generate", out_of_memory)
    cause = r"worker engine-0: .*it failed before: engine/mock: generate .*: RuntimeError: out of memory; "
    with pytest.raises(RunFailed, match=cause + "it was restarted 3 times before"):
        scene.run()


def test_a_worker_that_dies_too_often_fails_the_run_with_a_command_that_resumes(scene):
    with pytest.raises(RunFailed, match=r"worker engine-0: killed; it was restarted 3 times before") as failure:
        scene.run(SLOW, meddle=killing("engine-0", times=4))
    assert failure.value.run_dir == str(scene.folder / "run")
    assert failure.value.resume.endswith(f"--resume {scene.folder / 'run'}")
    assert list((scene.folder / "run" / "checkpoints").iterdir())


def test_a_lost_trainer_that_may_not_be_restarted_fails_the_run_at_once(scene):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 5)
        controller._crew.trainer.kill()

    with pytest.raises(RunFailed, match=r"worker trainer: .*killed"):
        scene.run(SLOW, "supervision.max_restarts=0", meddle=meddle)
    assert scene.log.kinds().count("run-failed") == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_step_that_a_trainer_raised_in_leaves_no_checkpoint_since_it_may_be_done_by_half(scene, ranks):
    fault = f"executor.mock.faults=[{{method: train, call: {8 * ranks}}}]"
    with pytest.raises(RunFailed, match="train: RuntimeError: told to fail"):
        scene.run(f"resources={{train: {{num_gpus: {ranks}}}}}", "checkpoint.every=4", fault, ONCE)
    assert [path.name for path in (scene.folder / "run" / "checkpoints").iterdir()] == ["step-4"]


def test_a_step_that_failed_is_done_again_after_a_resume(scene):
    with pytest.raises(RunFailed):
        scene.run("checkpoint.every=4", "training.mock.faults=[{method: train, call: 8}]", ONCE)
    scene.run(resume=scene.checkpoint(4))
    assert trained(scene) == list(range(80))


def test_a_reward_that_always_raises_fails_the_run_with_its_error(scene):
    with pytest.raises(RunFailed, match=r"11 of the last 50 groups failed.*reward/mock: score .*RuntimeError: told to"):
        scene.run("environments=[{type: mock, reward: {type: mock, faults: [{method: score, times: null}]}}]")


def test_a_group_that_always_fails_is_tried_again_and_then_replaced(scene):
    scene.run("environments=[{type: mock, reward: mock, failing: [5, 17]}]")
    assert scene.log.kinds().count("group-retried") == 4
    assert scene.log.kinds().count("group-failed") == 2
    assert trained(scene) == [sequence for sequence in range(82) if sequence not in (5, 17)]
    assert sum(line.get("dropped/failed", 0) for line in scene.lines("metrics.jsonl")) == 8


def test_no_failure_is_tolerated_where_none_may_be(scene):
    with pytest.raises(RunFailed, match=r"1 of the last 50 groups failed.*told to fail on task 5"):
        scene.run("environments=[{type: mock, reward: mock, failing: [5]}]", "supervision.max_failed_share=0")


def test_bad_input_is_not_tried_again(scene):
    with pytest.raises(RunFailed, match="task numbers/train/0: has no demonstration"):
        scene.run("objective=sft", "environments=[{name: numbers, type: mock, demonstrates: false, reward: mock}]")
    assert "group-retried" not in scene.log.kinds()


def test_a_transfer_that_fails_once_is_tried_again(scene):
    summary = scene.run("weights.mock.faults=[{method: receive, call: 7, times: 2}]")
    assert summary.outcome == "done"
    assert scene.log.kinds().count("weights-failed") == 2


def test_a_transfer_that_keeps_failing_fails_the_run_and_no_engine_has_the_version(scene):
    with pytest.raises(RunFailed, match=r"transport mock: told to fail at call 9 of receive"):
        scene.run("weights.mock.faults=[{method: receive, call: 7, times: 9}]")
    assert scene.checkpoint(6).is_dir() or scene.checkpoint(7).is_dir()


def test_nothing_is_asked_of_a_trainer_whose_collective_exchange_broke_off(scene):
    asked = []

    async def meddle(controller):
        controller._weights._route = Route("mock", "tensors", collective=True)
        await controller._run.condition.until(lambda: controller._run.events.step >= 4)
        trainer, stuck = controller._crew.trainer.ranks[0], asyncio.Event()
        call = trainer.call

        async def stick(method, *args, **options):
            asked.append((method, *map(str, args)))
            return await (stuck.wait() if asked[-1] == ("publish", "0.5") else call(method, *args, **options))

        trainer.call = stick

    options = ("weights.mock.faults=[{method: receive, call: 6}]", "supervision.max_restarts=0")
    with pytest.raises(RunFailed, match="told to fail"):
        scene.run(*options, "executor.mock.latency.publish=0", meddle=meddle)
    assert asked[-1] == ("publish", "0.5")
    assert not list((scene.folder / "run" / "checkpoints").glob("*"))


def test_an_engine_that_serves_old_weights_fails_the_run(scene):
    with pytest.raises(RunFailed, match=r"these are not|tokens of .* are not of the versions"):
        scene.run("inference.mock={stale: true, token_seconds: 0.1}")


def test_a_stop_ends_after_the_step_that_is_being_trained(scene):
    async def meddle(controller):
        await asyncio.sleep(6.5)
        controller.stop("asked to")

    summary = scene.run(SLOW, meddle=meddle)
    assert summary.outcome == "stopped"
    assert summary.steps == len(scene.lines("metrics.jsonl"))
    assert summary.checkpoint.endswith(f"step-{summary.steps}")


def test_a_stop_during_the_first_evaluation_leaves_nothing_to_resume(scene):
    async def meddle(controller):
        await asyncio.sleep(1)
        controller.stop("asked to")

    summary = scene.run("evaluation={before: true}", "inference.mock.token_seconds=9", meddle=meddle)
    assert (summary.outcome, summary.steps, summary.checkpoint) == ("stopped", 0, "")


def cancel():
    for task in asyncio.all_tasks():
        if task.get_coro().__name__ == "main":
            task.cancel()


def none_left(controller):
    return all(worker._inner._host.gone.done() for worker in controller._executor.workers)


def test_a_cancelled_run_leaves_no_worker_and_replaces_none(scene):
    async def meddle(controller):
        await asyncio.sleep(6.5)
        cancel()

    with pytest.raises(asyncio.CancelledError):
        scene.run(SLOW, meddle=meddle)
    assert none_left(scene.controller)
    assert not [kind for kind in scene.log.kinds() if kind.startswith("worker-")]


def test_a_run_that_is_cancelled_while_it_closes_ends_its_workers_sooner_and_closes_all_the_same(scene):
    closed = []

    async def meddle(controller):
        close = controller._executor.close

        async def slowly():
            for _ in range(2):
                cancel()
                await asyncio.sleep(1)
            closed.append(none_left(controller))
            await close()

        controller._executor.close = slowly

    with pytest.raises(asyncio.CancelledError):
        scene.run("training.max_steps=2", meddle=meddle)
    assert closed == [True]
    assert scene.controller._run.directory.metrics._file._descriptor is None


def test_a_run_leaves_no_worker(scene):
    scene.run("training.max_steps=2")
    assert none_left(scene.controller)


class Raises:
    @hookimpl
    def areal_step_finished(self, step):
        raise RuntimeError(f"cannot bear step {step}")


class Keeps:
    def __init__(self):
        self.told = []

    @hookimpl
    def areal_run_started(self, run):
        self.told.append(("started", run.name))

    @hookimpl
    def areal_trajectories_collected(self, group):
        self.told.append(("collected", group.sequence))

    @hookimpl
    def areal_step_finished(self, step, metrics):
        self.told.append(("step", step))

    @hookimpl
    def areal_weights_published(self, version):
        self.told.append(("version", version.step))

    @hookimpl
    def areal_worker_failed(self, worker, reason):
        self.told.append(("failed", worker))

    @hookimpl
    def areal_run_finished(self, summary):
        self.told.append(("finished", summary.outcome))


def observed_by(*observers):
    manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    for observer in observers:
        manager.register(observer, name=type(observer).__name__)
    return manager


def test_an_observer_that_raises_becomes_an_event_and_the_others_still_hear(scene):
    keeps = Keeps()
    summary = scene.run(hooks=observed_by(Raises(), keeps))
    assert summary.outcome == "done"
    assert [step for what, step in keeps.told if what == "step"] == list(range(1, 21))
    events = [event for event in scene.lines("events.jsonl") if event["kind"] == "observer-failed"]
    assert "Raises: areal_step_finished: RuntimeError: cannot bear step 1" in events[0]["message"]


def test_an_observer_that_always_raises_is_given_up(scene):
    scene.run(hooks=observed_by(Raises()))
    events = [event for event in scene.log.events if event.kind == "observer-failed"]
    assert len(events) == 10
    assert events[-1].message.endswith("it is not called any more")


def test_observers_hear_the_life_of_a_run_in_order(scene):
    keeps = Keeps()
    scene.run(SLOW, meddle=killing("engine-0"), hooks=observed_by(keeps))
    assert keeps.told[0] == ("started", "mocked")
    assert [number for what, number in keeps.told if what == "version"] == list(range(21))
    assert sorted(number for what, number in keeps.told if what == "collected") == list(range(80))
    assert ("failed", "engine-0") in keeps.told
    assert keeps.told[-1] == ("finished", "done")


def test_a_tracker_that_raises_does_not_end_the_run(scene):
    summary = scene.run("trackers=[{type: mock, faults: [{method: log, times: null}]}]")
    assert summary.outcome == "done"
    assert "observer-failed" in scene.log.kinds()


def test_every_event_is_on_disk(scene):
    scene.run(SLOW, meddle=killing("engine-0"))
    lines = [json.loads(line) for line in (scene.folder / "run" / "events.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == scene.log.kinds()


def test_the_last_rollout_worker_that_dies_while_it_is_asked_for_sizes_ends_the_run(scene):
    async def meddle(controller):
        await asyncio.sleep(1.0)
        seats(controller)["rollout-0"].worker.kill()

    slow = "executor.mock.latency={size: 5.0}"
    with pytest.raises(RunFailed, match="rollout-0"):
        scene.run(slow, "supervision.max_restarts=0", meddle=meddle)


def test_an_engine_that_waits_for_its_answers_to_end_takes_in_weights_though_they_are_cancelled(scene):
    workers = "resources={infer: {num_gpus: 2}, rollout: {cpus: 2}}"
    overrides = ("pipeline.interruptible=false", "supervision.max_restarts=9", workers)
    summary = scene.run(SLOW, *overrides, meddle=killing("rollout-0", "rollout-1", times=9))
    assert summary.outcome == "done"
    assert {event.data["worker"] for event in scene.log.events if event.kind == "worker-lost"} == {
        "rollout-0",
        "rollout-1",
    }
