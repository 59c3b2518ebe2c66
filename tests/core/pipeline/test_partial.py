"""Groups that are under way at a checkpoint go on from there, with what was drawn of them."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest

from areal_core.data import WeightVersion
from areal_core.pipeline import checkpoint
from areal_core.workers.rollout import RolloutService
from areal_core.workers.seeds import derive
from areal_plugins.testing.mocks.engine import drawn_logprobs, spell

SLOW = "inference.mock={token_seconds: 0.1, shortest: 40}"
EVERY = "checkpoint={every: 4, keep: 100}"


def stop_at(step):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= step)
        await asyncio.sleep(0.05)
        controller.stop("enough")

    return meddle


def lose_at(step, after):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= step)
        await asyncio.sleep(after)
        controller._crew.trainer.ranks[0].kill()

    return meddle


@pytest.fixture
def rolled(monkeypatch):
    """Every order that was carried out, with its result."""
    seen, run_group = [], RolloutService.run_group

    async def run(service, order):
        result = await run_group(service, order)
        seen.append((order, result.group))
        return result

    monkeypatch.setattr(RolloutService, "run_group", run)
    return seen


def state(path):
    return json.loads((path / "pipeline.json").read_text())


def versions(trajectory):
    codes = trajectory.columns["versions"][trajectory.prompt_length :]
    return [WeightVersion.from_code(int(code)) for code in codes]


def ensure_goes_on(order, group):
    """What was begun is kept to the bit, and what follows is what the stream of the member draws next."""
    for begun, trajectory in zip(order.begun, group, strict=True):
        prompt, size = trajectory.prompt_length, len(trajectory)
        for name, column in begun.columns.items():
            np.testing.assert_array_equal(column, trajectory.columns[name][: len(begun)])
        expected = drawn_logprobs(derive(order.seed, 0, 0), trajectory.member, size - prompt)
        np.testing.assert_array_equal(trajectory.columns["logprobs"][prompt:], expected)
        spelt = [spell(version.step) for version in versions(trajectory)]
        assert trajectory.columns["tokens"][prompt:].tolist() == spelt


def test_the_groups_of_a_stopped_run_go_on_from_what_was_drawn(scene, rolled):
    scene.run(SLOW, meddle=stop_at(7))
    stopped = checkpoint.latest(scene.folder / "run")
    held = {group["sequence"] for group in state(stopped)["partial"]}
    assert held
    assert held <= {sequence for sequence, _ in state(stopped)["under_way"]}
    rolled.clear()
    scene.run(SLOW, resume=stopped)
    continued = [(order, group) for order, group in rolled if order.begun is not None]
    assert {order.sequence for order, _ in continued} == held
    for order, group in continued:
        ensure_goes_on(order, group)
    drawn_by = [{version.incarnation for version in versions(t)} for _, group in continued for t in group]
    assert {0, 1} in drawn_by
    trained = [line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl")]
    assert sorted(trained) == list(range(80))


def test_what_was_drawn_before_the_stop_is_not_drawn_again(scene):
    """The same answers as those of a run that was never stopped, so that as many tokens are drawn in all."""
    scene.run(SLOW, name="whole")
    scene.run(SLOW, meddle=stop_at(7))
    scene.run(SLOW, resume=checkpoint.latest(scene.folder / "run"))
    assert (
        scene.lines("metrics.jsonl")[-1]["tokens/trained"]
        == scene.lines("metrics.jsonl", "whole")[-1]["tokens/trained"]
    )
    assert scene.controller is not None
    assert lengths(scene, "run") == lengths(scene, "whole")


def lengths(scene, name):
    lines = scene.lines("trajectories/steps-0000001-0000100.jsonl", name)
    return {line["sequence"]: [t["length"] for t in line["trajectories"]] for line in lines}


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_the_bound_on_staleness_holds_for_groups_that_go_on(scene, watched, staleness):
    options = (SLOW, f"pipeline.max_staleness={staleness}")
    scene.run(*options, meddle=stop_at(7))
    scene.run(*options, resume=checkpoint.latest(scene.folder / "run"))
    lines = scene.lines("metrics.jsonl")
    assert max(line["lag/max"] for line in lines) <= staleness
    assert not any("dropped/stale" in line for line in lines)


def test_a_lost_trainer_takes_up_what_its_checkpoint_has_begun(scene, rolled):
    scene.run(SLOW, EVERY, meddle=lose_at(6, 0.3))
    held = {group["sequence"] for group in state(scene.checkpoint(4))["partial"]}
    continued = [(order, group) for order, group in rolled if order.begun is not None]
    assert held
    assert {order.sequence for order, _ in continued} == held
    for order, group in continued:
        ensure_goes_on(order, group)
        assert all(v.step <= 4 for t in group for v in versions(t) if v.incarnation == 0)
    trained = [line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl")]
    assert sorted(trained) == list(range(80))


def test_what_later_weights_drew_before_a_worker_answered_is_left_out(scene):
    scene.run(SLOW, EVERY, "training.max_steps=8", "executor.mock.latency={train: 0.2, partial: 2.5}")
    held = checkpoint.read(scene.checkpoint(4), scene.controller._composition.identity()).partial
    steps = {version.step for group in held for trajectory in group for version in versions(trajectory)}
    assert max(steps) == 4


def test_nobody_but_the_checkpoint_waits_for_a_worker_that_does_not_answer(scene):
    slow = "executor.mock.latency={train: 1.0, partial: 60}"
    scene.run(SLOW, EVERY, "training.max_steps=8", slow)
    assert state(scene.checkpoint(4))["under_way"]
    assert state(scene.checkpoint(4))["partial"] == []
    (event,) = [event for event in scene.log.events if event.kind == "no-partial"]
    assert event.data == {"worker": "rollout-0", "cause": "no answer within 3 s"}
    spans = json.loads((scene.folder / "run" / "trace.json").read_text())
    (copied,) = [e["dur"] for e in spans if e.get("name") == "copy" and e["args"]["step"] == 4]
    assert copied < 0.1e6
    scene.run(SLOW, EVERY, "training.max_steps=8", resume=scene.checkpoint(4))
    assert len(scene.lines("metrics.jsonl")) == 8


@pytest.mark.parametrize(
    "fault", ["executor.mock.faults=[{method: partial, call: 1}]", "inference.mock.faults=[{method: partial, call: 1}]"]
)
def test_a_worker_that_raises_costs_the_parts_and_nothing_else(scene, fault):
    scene.run(SLOW, EVERY, "training.max_steps=8", fault)
    assert state(scene.checkpoint(4))["partial"] == []
    (event,) = [event for event in scene.log.events if event.kind == "no-partial"]
    assert "told to fail at call 1 of partial" in event.data["cause"]


def test_answers_that_are_not_kept_over_an_update_are_not_kept_over_a_resume(scene):
    scene.run(SLOW, "pipeline.interruptible=false", meddle=stop_at(7))
    stopped = state(checkpoint.latest(scene.folder / "run"))
    assert stopped["under_way"]
    assert stopped["partial"] == []


def test_nothing_is_under_way_in_the_checkpoints_of_a_debug_run(scene):
    scene.run(SLOW, EVERY, "training.max_steps=8", debug=True)
    for step in (4, 8):
        assert state(scene.checkpoint(step))["under_way"] == state(scene.checkpoint(step))["partial"] == []


def test_a_group_that_would_be_too_old_is_given_up_and_counted(scene):
    ahead = (SLOW, "pipeline={max_staleness: 4, on_stale: drop}")
    scene.run(*ahead, meddle=stop_at(8))
    stopped = checkpoint.latest(scene.folder / "run")
    held = [group["sequence"] for group in state(stopped)["partial"]]
    assert held
    scene.run(*ahead, "pipeline.max_staleness=0", "training.max_steps=12", resume=stopped)
    lines = scene.lines("metrics.jsonl")
    assert max(line["lag/max"] for line in lines[8:]) == 0
    assert sum(line.get("dropped/stale", 0) for line in lines) >= 4


def test_a_checkpoint_of_the_format_before_is_gone_on_from(scene, rolled):
    scene.run(SLOW, meddle=stop_at(7))
    stopped = checkpoint.latest(scene.folder / "run")
    data = state(stopped) | {"format": 2}
    del data["partial"]
    (stopped / "pipeline.json").write_text(json.dumps(data))
    rolled.clear()
    scene.run(SLOW, resume=stopped)
    assert all(order.begun is None for order, _ in rolled)
    trained = [line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl")]
    assert sorted(trained) == list(range(80))
