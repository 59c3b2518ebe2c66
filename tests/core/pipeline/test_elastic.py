from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from areal_core.errors import InputError
from areal_core.pipeline.crew import Crew
from areal_core.pipeline.elastic import AT_ONCE

SLOW = "inference.mock.token_seconds=0.1"


def trained(scene):
    return sorted(line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl"))


def events(scene, kind):
    return [event for event in scene.log.events if event.kind == kind]


def scaling(*sizes, outcomes=None):
    """Ask for so many engines, once after every fourth step."""

    async def meddle(controller):
        run = controller._run
        for turn, size in enumerate(sizes):
            await run.condition.until(lambda turn=turn: run.events.step >= 4 * turn + 3)
            try:
                came = await controller.scale(size)
            except Exception as error:
                came = error
            if outcomes is not None:
                outcomes.append(came)

    return meddle


def test_engines_that_join_serve_the_current_weights_within_the_bound(scene, watched):
    """The mock trainer refuses tokens of wrong weights, the buffer tokens older than their admission."""
    changes = []
    scene.run(SLOW, "pipeline.max_staleness=1", "executor.mock.latency.start=2", meddle=scaling(3, outcomes=changes))
    assert [(change.before, change.joined, change.left) for change in changes] == [(1, ("engine-1", "engine-2"), ())]
    assert trained(scene) == list(range(80))
    assert max(line["lag/max"] for line in scene.lines("metrics.jsonl")) <= 1
    assert {seat.name: seat.ready for seat in scene.controller._crew.engines.seats} == {
        "engine-0": True, "engine-1": True, "engine-2": True
    }  # fmt: skip


def test_engines_that_leave_finish_what_they_work_on(scene, watched):
    changes = []
    scene.run(SLOW, "resources={infer: {num_gpus: 3}}", meddle=scaling(1, outcomes=changes))
    assert set(changes[0].left) == {"engine-1", "engine-2"}
    assert trained(scene) == list(range(80))
    assert not events(scene, "group-retried")
    assert not events(scene, "worker-lost")
    assert {event.data["worker"] for event in events(scene, "engine-left")} == set(changes[0].left)


def test_what_a_leaving_engine_does_not_finish_in_time_is_rolled_out_elsewhere(scene):
    options = "inference.mock={token_seconds: 2, longest: 100, shortest: 50}"
    scene.run(options, "resources={infer: {num_gpus: 2}}", "training.max_steps=12", meddle=scaling(1))
    assert events(scene, "group-retried")
    assert trained(scene) == list(range(48))


def test_engines_come_and_go_and_come(scene, watched):
    changes = []
    scene.run(SLOW, meddle=scaling(2, 1, 3, 1, outcomes=changes))
    assert [(change.before, len(change.joined), len(change.left)) for change in changes] == [
        (1, 1, 0), (2, 0, 1), (1, 2, 0), (3, 0, 2)
    ]  # fmt: skip
    assert trained(scene) == list(range(80))


def test_training_does_not_wait_for_engines_that_join(scene):
    steps = []

    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 3)
        steps.append(controller._run.events.step)
        await controller.scale(2)
        steps.append(controller._run.events.step)

    scene.run(SLOW, "executor.mock.latency.setup=30", meddle=meddle)
    assert steps[1] > steps[0] + 2


def test_an_engine_that_joined_is_replaced_when_it_is_lost(scene):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 3)
        await controller.scale(2)
        controller._crew.engines.seats[1].worker.kill()

    scene.run(SLOW, meddle=meddle)
    assert [event.data["worker"] for event in events(scene, "worker-restarted")] == ["engine-1"]
    assert trained(scene) == list(range(80))


def test_an_engine_that_cannot_start_is_the_askers_error_and_not_the_runs(scene):
    outcomes = []
    scene.run(SLOW, "executor.mock.faults=[{method: start, call: 4}]", meddle=scaling(2, 2, outcomes=outcomes))
    assert "told to fail at call 4 of start" in str(outcomes[0])
    assert outcomes[1].joined == ("engine-1",)
    assert trained(scene) == list(range(80))


def test_an_engine_that_is_restarted_leaves_first(scene):
    outcomes = []

    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 3)
        controller._crew.engines.seats[0].worker.kill()
        await asyncio.sleep(0.5)
        outcomes.append(await controller.scale(1))

    scene.run(SLOW, "resources={infer: {num_gpus: 2}}", "executor.mock.latency.start=20", meddle=meddle)
    assert outcomes[0].left == ("engine-0",)
    assert trained(scene) == list(range(80))


@pytest.mark.parametrize(("engines", "problem"), [(0, "cannot serve a run"), (10**12, "are too many")])
def test_numbers_that_cannot_be_are_refused(scene, engines, problem):
    outcomes = []
    scene.run(SLOW, meddle=scaling(engines, outcomes=outcomes))
    assert isinstance(outcomes[0], InputError)
    assert f"{engines} engines {problem}" in str(outcomes[0])


def test_many_engines_join_a_few_at_a_time(scene):
    starting, most = set(), []
    hire = Crew.hire_engine

    async def watched(crew, index):
        starting.add(index)
        most.append(len(starting))
        try:
            return await hire(crew, index)
        finally:
            starting.discard(index)

    with patch.object(Crew, "hire_engine", watched):
        scene.run(SLOW, meddle=scaling(20))
    assert len(most) == 19
    assert max(most) == AT_ONCE


def test_engines_bound_together_are_refused(scene):
    outcomes = []

    async def meddle(controller):
        controller._crew.engines.whole = True
        await scaling(2, outcomes=outcomes)(controller)

    scene.run(SLOW, meddle=meddle)
    assert "binds all engines together" in str(outcomes[0])


def test_only_one_change_at_a_time(scene):
    outcomes = []

    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 3)
        first = asyncio.ensure_future(controller.scale(2))
        await asyncio.sleep(1)
        with pytest.raises(InputError, match="engines are joining or leaving at this moment"):
            await controller.scale(3)
        outcomes.append(await first)

    scene.run(SLOW, "executor.mock.latency.start=5", meddle=meddle)
    assert outcomes[0].joined == ("engine-1",)


def test_a_change_is_carried_out_though_nobody_waits_for_it(scene):
    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 3)
        asking = asyncio.ensure_future(controller.scale(2))
        await asyncio.sleep(1)
        asking.cancel()

    scene.run(SLOW, "executor.mock.latency.start=5", meddle=meddle)
    assert [event.data["worker"] for event in events(scene, "engine-joined")] == ["engine-1"]


def test_a_run_that_ends_meanwhile_leaves_no_worker_and_says_so_to_who_asked(scene):
    problems = []

    async def meddle(controller):
        await controller._run.condition.until(lambda: controller._run.events.step >= 3)
        asking = asyncio.ensure_future(controller.scale(4))
        await asyncio.sleep(1)
        controller.stop("asked to")
        for asked in (asking, controller.scale(2)):
            with pytest.raises(InputError) as problem:
                await asked
            problems.append(str(problem.value))

    scene.run(SLOW, "executor.mock.latency.setup=50", meddle=meddle)
    assert problems == [f"{scene.folder / 'run'}: its run ended meanwhile"] * 2
    assert all(worker._inner._host.gone.done() for worker in scene.controller._executor.workers)
