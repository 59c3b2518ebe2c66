"""Checkpoints are written beside the run, and a run outlives one that cannot be."""

from __future__ import annotations

import asyncio
import errno
import json

import pytest

from areal_core.errors import RunFailed, WorkerLost
from areal_core.pipeline import checkpoint, growing, manifest
from areal_plugins.testing.sim.disk import Disk

EVERY = "checkpoint={every: 4, keep: 100}"
SLOW = "inference.mock.token_seconds=0.1"


def saved(scene, name="run"):
    return sorted(int(path.name.removeprefix("step-")) for path in (scene.folder / name / "checkpoints").iterdir())


def without_checkpoint(scene):
    return [event for event in scene.log.events if event.kind == "no-checkpoint"]


@pytest.fixture
def full_at(monkeypatch):
    """The disk is full at these saves, counted from 1."""

    def full_at(*saves):
        seal, count = manifest.seal, iter(range(1, 1000))

        def full(directory):
            if next(count) in saves:
                raise OSError(errno.ENOSPC, "No space left on device")
            seal(directory)

        monkeypatch.setattr(manifest, "seal", full)

    return full_at


@pytest.mark.parametrize("debug", [False, True])
def test_a_run_outlives_a_full_disk_and_saves_at_the_next_period(scene, full_at, debug):
    full_at(2)
    assert scene.run(EVERY, debug=debug).outcome == "done"
    assert saved(scene) == [4, 12, 16, 20]
    (event,) = without_checkpoint(scene)
    assert event.data["of"] == 8
    assert "No space left on device" in event.data["cause"]


@pytest.mark.parametrize("method", ["save_model", "save_state", "write"])
@pytest.mark.parametrize("debug", [False, True])
def test_a_run_outlives_a_trainer_that_cannot_save(scene, method, debug):
    summary = scene.run(EVERY, f"training.mock.faults=[{{method: {method}, call: 2}}]", debug=debug)
    assert summary.outcome == "done"
    assert saved(scene) == ([8, 12, 16, 20] if method == "write" else [4, 12, 16, 20])
    (event,) = without_checkpoint(scene)
    assert f"told to fail at call 2 of {method}" in event.data["cause"]


def test_a_trainer_that_is_lost_while_it_writes_the_last_checkpoint_comes_back(scene):
    async def meddle(controller):
        run = controller._run
        await run.condition.until(lambda: run.events.step >= 19)
        rank = controller._crew.trainer.ranks[0]
        call = rank.call

        async def dies(method, *args, timeout=None):
            if method == "written":
                rank.kill()
                raise WorkerLost(rank.name, "killed")  # before anybody else has noticed
            return await call(method, *args, timeout=timeout)

        rank.call = dies

    assert scene.run("checkpoint={every: 8}", meddle=meddle).outcome == "done"
    assert "trainer-restarted" in scene.log.kinds()
    assert saved(scene)[-1] == 20


def test_a_run_whose_last_checkpoint_cannot_be_written_has_failed_and_lost_nothing_else(scene, full_at):
    full_at(5, 6)
    with pytest.raises(RunFailed, match="No space left on device"):
        scene.run(EVERY)
    assert saved(scene) == [4, 8, 12, 16]
    assert [line["step"] for line in scene.lines("metrics.jsonl")] == list(range(1, 21))
    assert checkpoint.latest(scene.folder / "run") == scene.checkpoint(16)


def test_training_goes_on_while_a_checkpoint_is_written(scene):
    scene.run("checkpoint={every: 10}", "executor.mock.latency={train: 1.0, written: 4.5}")
    spans = json.loads((scene.folder / "run" / "trace.json").read_text())
    ((began, took),) = [(e["ts"], e["dur"]) for e in spans if e.get("name") == "write" and e["args"]["step"] == 10]
    meanwhile = [e for e in spans if e.get("name") == "train" and began < e["ts"] < began + took]
    assert len(meanwhile) >= 3


def test_what_is_written_is_the_state_of_its_step_whatever_was_trained_since(scene):
    slow = "executor.mock.latency={train: 1.0, written: 4.5}"
    scene.run("checkpoint={every: 10, keep: 9}", slow)
    assert json.loads((scene.checkpoint(10) / "config.json").read_text())["steps"] == 10
    assert json.loads((scene.checkpoint(10) / "trainer" / "state.json").read_text())["steps"] == 10
    scene.run("checkpoint={every: 10, keep: 9}", slow, resume=scene.checkpoint(10))
    assert [line["step"] for line in scene.lines("metrics.jsonl")] == list(range(1, 21))


def test_a_checkpoint_that_is_due_while_the_one_before_is_written_is_left_out(scene):
    scene.run("checkpoint={every: 4, keep: 9}", "executor.mock.latency={train: 1.0, written: 7}")
    assert [event.data["of"] for event in without_checkpoint(scene)] == [8, 16]
    assert {event.data["cause"] for event in without_checkpoint(scene)} == {"the one before is still being written"}
    assert saved(scene) == [4, 12, 20]


def test_a_run_that_is_stopped_waits_for_the_checkpoint_that_is_being_written(scene):
    async def meddle(controller):
        run = controller._run
        await run.condition.until(lambda: run.events.step >= 5)
        controller.stop("enough")

    scene.run(EVERY, "executor.mock.latency={train: 1.0, written: 30}", meddle=meddle)
    assert saved(scene)[0] == 4
    assert len(saved(scene)) == 2


def test_a_trainer_that_never_writes_its_checkpoint_is_hung_and_restarted(scene):
    hangs = "executor.mock.faults=[{method: written, kind: hang, call: 2}]"
    summary = scene.run("checkpoint={every: 4, keep: 9}", hangs, "supervision.train_timeout=3")
    assert summary.outcome == "done"
    (event,) = without_checkpoint(scene)
    assert event.data["of"] == 8
    (back,) = [event for event in scene.log.events if event.kind == "going-back"]
    assert "hung: a checkpoint was not written within 3 s" in back.message
    assert back.data["step"] == 4
    assert saved(scene) == [4, 8, 12, 16, 20]
    assert saved_steps(scene) == list(range(1, 21))


def test_a_last_checkpoint_that_is_never_written_is_tried_again_by_a_new_trainer(scene):
    hangs = "executor.mock.faults=[{method: written, kind: hang, call: 5}]"
    assert scene.run("checkpoint={every: 4, keep: 9}", hangs, "supervision.train_timeout=3").outcome == "done"
    assert saved(scene) == [4, 8, 12, 16, 20]


def test_a_damaged_checkpoint_that_was_passed_over_is_an_event(scene):
    scene.run(EVERY, "training.max_steps=8")
    (scene.checkpoint(8) / "config.json").write_bytes(b"{}")
    found, damaged = checkpoint.newest(scene.folder / "run")
    scene.run(EVERY, resume=found, damaged=damaged)
    (event,) = [event for event in scene.log.events if event.kind == "damaged-checkpoint"]
    assert event.data["path"] == str(scene.checkpoint(8) / "config.json")
    assert "damaged-step-8" in {path.name for path in (scene.folder / "run" / "checkpoints").iterdir()}
    assert saved_steps(scene) == list(range(1, 21))


def saved_steps(scene):
    return [line["step"] for line in scene.lines("metrics.jsonl")]


def filled(scene, disk, seconds=3.0):
    """The whole disk is full for so long, from step 5 on."""

    async def meddle(controller):
        run = controller._run
        await run.condition.until(lambda: run.events.step >= 5)
        disk.fill()
        await asyncio.sleep(seconds)
        disk.drain()

    return meddle


@pytest.fixture
def disk(tmp_path):
    with Disk(tmp_path, lambda event, path, target: None).mounted() as disk:
        yield disk


def test_a_run_outlives_a_disk_where_nothing_can_be_written_and_its_files_lack_nothing(scene, disk):
    assert scene.run("checkpoint.every=2", meddle=filled(scene, disk)).outcome == "done"
    assert without_checkpoint(scene)
    assert saved_steps(scene) == list(range(1, 21))
    written = [line["step"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl")]
    assert written == sorted(written)
    assert set(written) == set(range(1, 21))
    kinds = [line["kind"] for line in scene.lines("events.jsonl")]
    assert kinds == scene.log.kinds()


def test_a_run_that_fails_while_the_disk_is_full_says_so_as_any_other(scene, disk, monkeypatch):
    monkeypatch.setattr(growing, "LIMIT", 2000)
    with pytest.raises(RunFailed, match="No space left on device") as caught:
        scene.run("checkpoint.every=2", meddle=filled(scene, disk, seconds=1e6))
    assert "--resume" in caught.value.resume
    assert saved(scene)
