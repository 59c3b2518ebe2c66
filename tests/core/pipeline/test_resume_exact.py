"""A debug run that was cut anywhere and resumed writes what one that was not cut does, to the last bit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from areal_core.errors import RunFailed
from areal_core.local import load_file
from areal_core.pipeline import checkpoint

cuts = load_file(Path(__file__).parents[3] / "benchmarks" / "_cuts.py")

SPEC = """
name: cut
seed: 5
model: mock
platform: mock
executor: mock
resources: {infer: {num_gpus: 2}, rollout: {cpus: 2}}
inference: {type: mock, max_concurrent: 16, mock: {token_seconds: 0.1, longest: 50}}
training: {backend: mock, batch_size: 16, max_steps: 12, optimizer: mock}
weights: {type: mock}
objective: {type: grpo, group_size: 4}
environments: [{name: a, type: mock, reward: mock, size: 13}, {name: b, type: mock, reward: mock, weight: 0.5}]
pipeline: {max_staleness: 2}
evaluation: {samples: 8, every: 3}
checkpoint: {every: 4, keep: 1}
trackers: []
"""


class Killed(BaseException):
    """The end of the process."""


def killed():
    raise Killed


def written(scene, name):
    """All that a rerun must repeat; which incarnation of the trainer made the weights is no part of it."""
    folder = scene.folder / name
    files = [folder / "metrics.jsonl", folder / "evaluations.jsonl", *sorted((folder / "trajectories").iterdir())]
    return {file.name: re.sub(rb'"\d+\.(\d+)"', rb'"\1"', file.read_bytes()) for file in files}


_WHOLE: dict[str, bytes] = {}


@pytest.fixture
def whole(scene):
    """What the run that is not cut writes; it is run once."""
    if not _WHOLE:
        scene.run(spec=SPEC, debug=True, name="whole")
        _WHOLE.update(written(scene, "whole"))
    return _WHOLE


def go_on(scene):
    """As `run --resume` does."""
    found, damaged = checkpoint.newest(scene.folder / "run")
    assert not damaged
    return scene.run(spec=SPEC, debug=True, resume=found)


@pytest.mark.parametrize("point", cuts.POINTS)
def test_a_run_that_is_cut_and_resumed_repeats_the_rest_to_the_last_bit(scene, whole, point):
    with pytest.MonkeyPatch.context() as patched:
        cuts.cut(cuts.POINTS[point], killed, patched.setattr)
        with pytest.raises((Killed, RunFailed)):
            scene.run(spec=SPEC, debug=True)
    go_on(scene)
    assert written(scene, "run") == whole


@pytest.mark.parametrize("step", [1, 4, 6, 11])
def test_a_run_that_is_asked_to_stop_after_any_step_repeats_itself_once_resumed(scene, whole, step):
    async def meddle(controller):
        run = controller._run
        await run.condition.until(lambda: run.events.step >= step)
        controller.stop("enough")

    stopped = scene.run(spec=SPEC, debug=True, meddle=meddle)
    assert stopped.outcome == "stopped"
    assert go_on(scene).outcome == "done"
    assert written(scene, "run") == whole


def test_a_run_without_a_checkpoint_begins_again_and_says_so(scene, whole):
    with pytest.MonkeyPatch.context() as patched:
        cuts.cut(cuts.POINTS["while weights are published"], killed, patched.setattr)
        with pytest.raises((Killed, RunFailed)):
            scene.run(spec=SPEC, debug=True)
    go_on(scene)
    assert "begins-again" in scene.log.kinds()
    assert "from step 0" in next(event.message for event in scene.log.events if event.kind == "begins-again")
