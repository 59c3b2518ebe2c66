from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import ClassVar

import pluggy
import pytest

from areal_core import ENTRY_POINT_GROUP, hookspecs
from areal_core.errors import InputError, RunFailed
from areal_core.hookspecs import hookimpl
from areal_core.pipeline import checkpoint
from areal_core.pipeline.guard import Rules
from areal_core.pipeline.weights import Route
from areal_core.spec.model import AmpSpec, TrainingSpec
from areal_plugins.testing.mocks.trainer import MockTrainer

SLOW = "inference.mock.token_seconds=0.1"
EVERY = "checkpoint={every: 4, keep: 100}"
TWO = "resources={train: {num_gpus: 2}}"


def lose(at, rank=0, after=0.0, times=1):
    """Kill a trainer rank `after` seconds from when `at` steps are done, and so again when it is back."""

    async def meddle(controller):
        run = controller._run
        for _ in range(times):
            await run.condition.until(lambda: run.events.step >= at and not controller._crew.trainer.broken)
            await asyncio.sleep(after)
            controller._crew.trainer.ranks[rank].kill()
            await run.condition.until(lambda: controller._crew.trainer.broken)

    return meddle


def stop_at(step):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= step)
        controller.stop("enough")

    return meddle


def events(scene, kind):
    return [event.data for event in scene.log.events if event.kind == kind]


def lines(scene):
    return scene.lines("trajectories/steps-0000001-0000100.jsonl")


def ensure_whole(scene, steps=20, of=80):
    """The committed history is that of a run without a loss: every step once, every group trained on once."""
    metrics = scene.lines("metrics.jsonl")
    assert [line["step"] for line in metrics] == list(range(1, steps + 1))
    assert [line["step"] for line in scene.lines("timings.jsonl")] == list(range(1, steps + 1))
    assert sorted(line["sequence"] for line in lines(scene)) == list(range(of))
    assert {line["step"] for line in lines(scene)} == set(range(1, steps + 1))


def ensure_purged(scene):
    """What the lost steps' weights made is not trained on: versions of an incarnation end where the next begins."""
    begins = {data["incarnation"]: data["step"] for data in events(scene, "trainer-restarted")}
    for line in lines(scene):
        for trajectory in line["trajectories"]:
            incarnation, step = map(int, trajectory["version"].split("."))
            assert step < line["step"]
            later = [at for number, at in begins.items() if number > incarnation]
            assert step <= min(later, default=step)


@pytest.mark.parametrize("after", [0.0, 0.05, 0.3, 0.7, 1.1, 1.25])
def test_a_lost_trainer_comes_back_with_its_last_checkpoint(scene, watched, after):
    """The moments are those of a step: in `publish`, between, in `train`, in the next `publish`."""
    summary = scene.run(SLOW, EVERY, meddle=lose(10, after=after))
    assert (summary.outcome, summary.steps) == ("done", 20)
    ensure_whole(scene)
    ensure_purged(scene)
    (setback,) = events(scene, "trainer-restarted")
    assert (setback["step"], setback["incarnation"]) == (8, 1)
    assert 2 <= setback["steps"] <= 3
    assert max(watched) <= 5 * 16
    lost = sum(line.get("dropped/trainer-lost", 0) for line in scene.lines("metrics.jsonl"))
    assert lost == setback["trajectories"] > 0


def lose_in(*calls, rank=0):
    """Kill a rank in these calls, (method, number), counted over all of its lives."""

    async def meddle(controller):
        executor, counts, left = controller._executor, Counter(), list(calls)
        start = executor.start

        async def call(worker, inner, method, *args, **options):
            counts[method] += 1
            if (method, counts[method]) in left:
                left.remove((method, counts[method]))
                asyncio.get_running_loop().call_later(0.01, worker.kill)
                await worker.lost()
            return await inner(method, *args, **options)

        def bug(worker):
            if worker.spec.role == "trainer" and worker.spec.place.rank == rank:
                worker.call = partial(call, worker, worker.call)
            return worker

        async def start_bugged(spec):
            return bug(await start(spec))

        executor.start = start_bugged

    return meddle


@pytest.mark.parametrize(
    "calls",
    [
        [("train", 11)],
        [("publish", 11)],
        [("release", 9)],
        [("save_model", 2)],
        [("save_state", 2)],
        [("train", 11), ("setup", 2)],
        [("train", 11), ("begin_stage", 2)],
        [("train", 11), ("load_state", 1)],
        [("save_model", 5)],
    ],
    ids=lambda calls: "-".join(method for method, _ in calls),
)
def test_a_trainer_may_be_lost_in_any_call(scene, watched, calls):
    summary = scene.run(SLOW, EVERY, meddle=lose_in(*calls))
    assert (summary.outcome, summary.steps) == ("done", 20)
    ensure_whole(scene)
    ensure_purged(scene)
    assert len(events(scene, "worker-lost")) == len(calls)
    assert {data["worker"] for data in events(scene, "worker-lost")} == {"trainer"}
    assert not list((scene.folder / "run" / "checkpoints").glob(".*"))


@pytest.mark.parametrize("method", ["train", "publish"])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_trainer_that_raises_is_restarted_however_many_ranks_it_has(scene, ranks, method):
    fault = f"executor.mock.faults=[{{method: {method}, call: {11 * ranks}}}]"
    scene.run(SLOW, EVERY, f"resources={{train: {{num_gpus: {ranks}}}}}", fault)
    ensure_whole(scene)
    ensure_purged(scene)
    (lost,) = events(scene, "worker-lost")
    assert f"{method}: RuntimeError: told to fail" in lost["reason"]
    assert events(scene, "trainer-restarted")[0]["step"] == 8


def test_a_trainer_that_always_raises_at_the_same_step_fails_the_run_though_it_lives_long_before(scene):
    always = ("training.mock.faults=[{method: train, call: 6}]", "supervision={forgive_after: 2}")
    cause = r"trainer/mock: train step \d+: RuntimeError: told to fail .*; it was restarted 3 times before"
    with pytest.raises(RunFailed, match=cause):
        scene.run("checkpoint.every=10", *always)
    assert [data["step"] for data in events(scene, "going-back")] == [0, 0, 0]


def test_what_the_user_got_wrong_is_not_tried_again(scene, monkeypatch):
    def refuse(self, batch):
        raise InputError("training.micro_batch_tokens", "a trajectory is longer", "raise it")

    monkeypatch.setattr(MockTrainer, "train", refuse)
    with pytest.raises(RunFailed, match="a trajectory is longer"):
        scene.run()
    assert not events(scene, "worker-lost")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("method", ["train", "publish", "save_state"])
def test_a_lost_rank_takes_its_group_with_it_and_the_group_comes_back(scene, rank, method):
    scene.run(SLOW, EVERY, TWO, meddle=lose_in((method, 2), rank=rank))
    ensure_whole(scene)
    assert "trainer-restarted" in scene.log.kinds()


STAGES = (
    "stages=[{name: imitate, objective: sft, training: {max_steps: 4}}, "
    "{name: reinforce, training: {max_steps: 6}, environments: [{name: others, type: mock, reward: mock}]}]"
)


@pytest.mark.parametrize("calls", [[("begin_stage", 2)], [("train", 6)], [("publish", 2)]])
def test_a_trainer_lost_in_a_later_stage_goes_back_to_the_stage_of_its_checkpoint(scene, calls):
    scene.run(SLOW, "checkpoint={every: 3, keep: 100}", STAGES, meddle=lose_in(*calls))
    stages = [line["stage"] for line in scene.lines("metrics.jsonl")]
    assert stages == ["imitate"] * 4 + ["reinforce"] * 6
    (back,) = events(scene, "trainer-restarted")
    assert back["step"] == 3
    assert {line["environment"] for line in lines(scene) if line["step"] <= 4} == {"numbers"}
    assert {line["environment"] for line in lines(scene) if line["step"] > 4} == {"others"}


def test_without_a_checkpoint_the_run_begins_again(scene):
    summary = scene.run(SLOW, "evaluation={samples: 8, before: true, after: false}", meddle=lose(5))
    assert (summary.outcome, summary.steps) == ("done", 20)
    ensure_whole(scene)
    assert events(scene, "trainer-restarted")[0]["step"] == 0
    assert [line["step"] for line in scene.lines("evaluations.jsonl")] == [0]


def test_a_resumed_run_without_a_checkpoint_of_its_own_goes_back_to_where_it_resumed(scene):
    scene.run(SLOW, EVERY, meddle=stop_at(9))
    at = checkpoint.latest(scene.folder / "run")
    scene.run(SLOW, resume=at, meddle=lose(12))
    ensure_whole(scene)
    assert events(scene, "trainer-restarted")[0]["step"] == int(at.name.removeprefix("step-"))


def test_a_trainer_that_is_lost_too_often_fails_the_run_with_its_cause_and_a_command_that_resumes(scene):
    with pytest.raises(RunFailed, match=r"worker trainer: trainer: killed; it was restarted 3 times before") as failure:
        scene.run(SLOW, EVERY, meddle=lose(6, times=4))
    assert failure.value.resume.endswith(f"--resume {scene.folder / 'run'}")
    assert checkpoint.latest(scene.folder / "run") == scene.checkpoint(4)
    assert len(events(scene, "worker-lost")) == 4


def test_restarts_are_counted_anew_once_a_trainer_lived_long_enough(scene):
    scene.run(SLOW, EVERY, "supervision={max_restarts: 1, forgive_after: 3}", meddle=lose(9, after=3.5, times=3))
    ensure_whole(scene)


def test_a_trainer_that_does_not_return_is_hung_and_restarted(scene):
    hang = "training.mock.faults=[{method: train, kind: late, call: 9, seconds: 0}]"
    executor = "executor.mock={latency: {train: 1.0}, faults: [{method: train, call: 9, kind: hang}]}"
    scene.run(SLOW, EVERY, hang, executor, "supervision.train_timeout=50")
    ensure_whole(scene)
    (lost,) = events(scene, "worker-lost")
    assert (lost["reason"], lost["how"]) == ("hung: train did not return within 50 s", "hung")


def test_observers_hear_of_a_lost_trainer(scene):
    class Keeps:
        told: ClassVar = []

        @hookimpl
        def areal_worker_failed(self, worker, reason):
            self.told.append((worker, reason))

    manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    manager.register(Keeps())
    scene.run(SLOW, EVERY, meddle=lose(5), hooks=manager)
    assert Keeps.told == [("trainer", "trainer: killed")]


def test_a_stop_while_the_trainer_restarts_ends_the_run_at_its_checkpoint(scene):
    async def meddle(controller):
        await lose(10)(controller)
        await asyncio.sleep(0.5)
        controller.stop("asked to")

    summary = scene.run(SLOW, EVERY, "executor.mock.latency.start=5", meddle=meddle)
    assert (summary.outcome, summary.steps) == ("stopped", 8)
    assert summary.checkpoint == str(scene.checkpoint(8))


def test_a_trainer_lost_in_the_last_evaluation_is_not_needed_any_more(scene):
    class Watches(type(scene.log)):
        def phase(self, text):
            if text == "evaluating":
                scene.controller._crew.trainer.ranks[0].kill()

    summary = scene.run("evaluation={samples: 8, before: false}", log=Watches())
    assert summary.outcome == "done"
    assert not events(scene, "worker-lost")


def test_an_engine_that_starts_while_there_is_no_trainer_waits_for_its_first_version(scene):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 10)
        controller._crew.engines.seats[0].worker.kill()
        controller._crew.trainer.ranks[0].kill()

    scene.run(SLOW, EVERY, "resources={infer: {num_gpus: 2}}", "executor.mock.latency.start=2", meddle=meddle)
    ensure_whole(scene)
    ensure_purged(scene)
    assert len(events(scene, "worker-restarted")) == 1


def test_an_engine_that_joins_while_the_trainer_takes_long_to_come_back_is_not_to_blame(scene):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 5)
        controller._crew.engines.seats[0].worker.kill()
        await asyncio.sleep(0.01)
        controller._crew.trainer.ranks[0].kill()

    limits = "supervision={start_timeout: 60, max_restarts: 1}"
    slow = "executor.mock.latency.load_state=400"
    scene.run(SLOW, EVERY, "resources={infer: {num_gpus: 2}}", limits, slow, meddle=meddle)
    ensure_whole(scene)
    ensure_purged(scene)
    assert sorted(data["worker"] for data in events(scene, "worker-lost")) == ["engine-0", "trainer"]


def test_a_broken_exchange_of_all_restarts_the_trainer_and_the_engines(scene):
    async def meddle(controller):
        controller._weights._route = Route("mock", "tensors", collective=True)

    faults = "weights.mock.faults=[{method: receive, call: 6}]"
    scene.run(EVERY, faults, "training.max_steps=8", "executor.mock.latency.publish=0", meddle=meddle)
    ensure_whole(scene, 8, 32)
    assert {data["worker"] for data in events(scene, "worker-lost")} == {"trainer", "engine-0"}


@pytest.mark.parametrize("method", ["prepare", "commit"])
def test_an_engine_that_never_takes_a_version_is_replaced_and_the_others_go_on(scene, method):
    fault = f"executor.mock.faults=[{{method: {method}, call: 7, kind: hang}}]"
    scene.run(SLOW, fault, "resources={infer: {num_gpus: 2}}", "supervision.update_timeout=20")
    ensure_whole(scene)
    (lost,) = events(scene, "worker-lost")
    assert lost["reason"] == f"hung: it did not {method} the weights within 20 s"


SHORT = ("training.max_steps=10", "checkpoint={every: 4, keep: 100}")
RATIO = "training.grad_guard={ratio: 10, window: 4, then: %s}"


def test_a_step_that_explodes_is_skipped_and_told(scene):
    scene.run(*SHORT, RATIO % "skip", "training.mock.exploding=[6]")
    ensure_whole(scene, 10, 40)
    assert [line["step"] for line in scene.lines("metrics.jsonl") if line["exploded"]] == [6]
    (event,) = [event for event in scene.log.events if event.kind == "skipped"]
    assert event.message == "step 6 changed no weight: its gradient's norm, 1000, is over 10"
    assert event.data["then"] == "skip"


def test_a_gradient_is_not_too_large_while_too_few_are_known(scene):
    scene.run(*SHORT, RATIO % "stop", "training.mock.exploding=[2]")
    ensure_whole(scene, 10, 40)


def test_gradients_that_stay_large_are_let_through_in_time(scene):
    scene.run(*SHORT, RATIO % "skip", "training.mock.exploding=[5, 6, 7, 8, 9, 10]")
    assert [line["step"] for line in scene.lines("metrics.jsonl") if line["exploded"]] == [5, 6]


@pytest.mark.parametrize(("rule", "figure"), [("exploding", "exploded"), ("nonfinite", "skipped")])
def test_a_step_may_take_the_run_back_to_its_checkpoint_without_a_restart(scene, rule, figure):
    reload = (RATIO % "reload", "training.on_nonfinite=reload")
    scene.run(*SHORT, *reload, f"training.mock.{rule}=[7]")
    ensure_whole(scene, 10, 40)
    metrics = scene.lines("metrics.jsonl")
    assert not any(line[figure] for line in metrics)
    assert [line.get("reloads", 0) for line in metrics] == [0] * 4 + [1] * 6
    assert not events(scene, "worker-lost")
    (back,) = events(scene, "reloaded")
    assert (back["step"], back["steps"], back["incarnation"]) == (4, 3, 1)


def test_a_trainer_that_is_in_a_later_stage_than_its_checkpoint_is_started_anew(scene):
    stages = "stages=[{name: a, training: {max_steps: 5}}, {name: b, training: {max_steps: 5}}]"
    scene.run(stages, SHORT[1], "training.on_nonfinite=reload", "training.mock.nonfinite=[6]")
    ensure_whole(scene, 10, 40)
    assert [data["step"] for data in events(scene, "reloaded")] == [4, 8]


def test_a_trainer_without_a_checkpoint_begins_again(scene):
    options = ("training.on_nonfinite=reload", "training.mock.nonfinite=[3]", "supervision.max_reloads=1")
    with pytest.raises(RunFailed, match="step 3 changed no weight: it is not finite; the run went back 1 times before"):
        scene.run("training.max_steps=10", *options)
    assert [data["step"] for data in events(scene, "reloaded")] == [0]


def test_a_run_that_keeps_exploding_fails_with_the_cause(scene):
    cause = r"step 6 changed no weight: it is not finite; the run went back 3 times before, to the same checkpoint"
    with pytest.raises(RunFailed, match=cause):
        scene.run(*SHORT, "training.on_nonfinite=reload", "training.mock.nonfinite=[6, 8, 10, 12, 14]")
    assert len(events(scene, "reloaded")) == 3


def test_a_step_may_stop_the_run_with_a_checkpoint_before_it_counts(scene):
    with pytest.raises(RunFailed, match="step 6 changed no weight: it is not finite"):
        scene.run(*SHORT, "training.on_nonfinite=stop", "training.mock.nonfinite=[6]")
    assert scene.run(*SHORT, resume=checkpoint.latest(scene.folder / "run")).outcome == "done"
    ensure_whole(scene, 10, 40)


def test_a_gradients_limit_is_the_same_after_a_resume(scene):
    limits = (*SHORT, RATIO % "skip")
    scene.run(*limits, "training.mock.exploding=[9]", meddle=stop_at(4))
    at = checkpoint.latest(scene.folder / "run")
    scene.run(*limits, "training.mock.exploding=[1]", resume=at)
    skipped = [line["step"] for line in scene.lines("metrics.jsonl") if line["exploded"]]
    assert skipped == [int(at.name.removeprefix("step-")) + 1]


@pytest.mark.parametrize(
    ("dtype", "scale", "kept"), [("fp16", "dynamic", "skip"), ("fp16", 8.0, "stop"), ("bf16", 1.0, "stop")]
)
def test_under_a_dynamic_loss_scale_steps_that_are_not_finite_are_only_skipped(dtype, scale, kept):
    assert Rules.of(TrainingSpec(on_nonfinite="stop", amp=AmpSpec(True, dtype, scale))).nonfinite == kept


def test_a_debug_run_whose_trainer_is_lost_while_it_renews_the_others_has_them_all_the_same(scene):
    async def meddle(controller):
        renew = controller._crew.renew

        async def without_trainer(version):
            controller._crew.renew = renew
            controller._crew.trainer.ranks[0].kill()
            await renew(version)

        controller._crew.renew = without_trainer

    assert scene.run("checkpoint.every=4", debug=True, meddle=meddle).outcome == "done"
    assert "trainer-restarted" in scene.log.kinds()
