from __future__ import annotations

import asyncio
import json

import pytest

from areal_core.errors import RunFailed
from areal_core.pipeline import checkpoint

SLOW = "inference.mock.token_seconds=0.1"
EVERY = "checkpoint={every: 4, keep: 100}"


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


MOMENTS = {
    "mid-save": ("save_model", 2),
    "mid-save of the state": ("save_state", 1),
    "publishing": ("publish", 7),
    "training": ("train", 11),
    "beginning": ("begin_stage", 2),
    "loading": ("load_state", 1),
    "setting up": ("setup", 1),
    "releasing": ("release", 5),
}


def lose_in(method, call, rank=0, **_):
    """Kill a rank in the n-th call of a method, counted over all lives; the first time in a later life for `load_state`."""

    async def meddle(controller):
        executor, count = controller._executor, 0
        start = executor.start

        async def call_or_die(worker, inner, name, *args, **options):
            nonlocal count
            count += name == method
            if name == method and count == call:
                asyncio.get_running_loop().call_later(0.01, worker.kill)
                await asyncio.sleep(1)
            return await inner(name, *args, **options)

        async def bugged(spec):
            return bug(await start(spec))

        def bug(worker):
            if worker.spec.role == "trainer" and worker.spec.place.rank == rank:
                inner = worker.call
                worker.call = lambda name, *args, **options: call_or_die(worker, inner, name, *args, **options)
            return worker

        await controller._run.condition.until(lambda: controller._run.events.step >= 1)
        executor.start = bugged
        bug(controller._crew.trainer.ranks[rank])

    return meddle
