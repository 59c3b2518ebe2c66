from __future__ import annotations

import asyncio
import json
import shutil

import pytest

from areal_core.errors import CheckpointError
from areal_core.pipeline import checkpoint

SLOW = "inference.mock.token_seconds=0.1"
DROP = ("pipeline={max_staleness: 1, on_stale: drop}", "executor.mock.latency={train: 0.1}")
EVERY = "checkpoint={every: 4, keep: 100}"


def stop_at(step):
    async def meddle(controller):
        run = controller._run
        await run.condition.until(lambda: run.events.step >= step)
        controller.stop("enough")

    return meddle


def copy(scene, step, source, target):
    """A run directory as it was when `step` had just been saved and the run was killed some steps later."""
    shutil.copytree(scene.folder / source, scene.folder / target)
    for path in (scene.folder / target / "checkpoints").iterdir():
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)
    return checkpoint.latest(scene.folder / target)


@pytest.mark.parametrize("cut", [4, 8, 16])
@pytest.mark.parametrize(
    "options",
    [(), ("pipeline.max_staleness=0",), ("pipeline={max_staleness: 1, on_stale: drop}",), ("weights.every=3",)],
)
def test_a_resumed_debug_run_repeats_the_rest_to_the_last_bit(scene, cut, options):
    scene.run(SLOW, EVERY, *options, name="whole", debug=True)
    resumed = copy(scene, cut, "whole", "cut")
    scene.run(SLOW, EVERY, *options, name="cut", debug=True, resume=resumed)
    assert scene.metrics("cut") == scene.metrics("whole")
    assert _trained(scene, "cut") == _trained(scene, "whole")


STAGES = """
name: staged
seed: 1
model: mock
platform: mock
executor: {type: mock, mock: {latency: {train: 1.0}}}
inference: {type: mock, max_concurrent: 16, mock: {token_seconds: 0.1, longest: 50}}
training: {backend: mock, batch_size: 16, optimizer: mock}
weights: {type: mock}
objective: {type: grpo, group_size: 4}
environments: [{name: a, type: mock, reward: mock, size: 13}, {name: b, type: mock, reward: mock, weight: 0.5}]
evaluation: {samples: 8, every: 3}
checkpoint: {every: 2, keep: 100}
trackers: []
stages:
  - {name: imitate, objective: sft, training: {max_steps: 4}}
  - {name: reinforce, training: {max_steps: 5}}
"""


@pytest.mark.parametrize("cut", [2, 4, 6, 8])
def test_a_resume_finds_its_stage_its_tasks_and_its_scores(scene, cut):
    whole = scene.run(spec=STAGES, name="whole", debug=True)
    resumed = copy(scene, cut, "whole", "cut")
    again = scene.run(spec=STAGES, name="cut", debug=True, resume=resumed)
    assert scene.metrics("cut") == scene.metrics("whole")
    assert again.evaluations == whole.evaluations
    assert _without_incarnation(scene.lines("evaluations.jsonl", "cut")) == scene.lines("evaluations.jsonl", "whole")


def lengths(first, second):
    return f"stages.0.training.max_steps={first}", f"stages.1.training.max_steps={second}"


@pytest.mark.parametrize(
    ("cut", "now", "steps"), [(6, (8, 5), "9 to 13"), (4, (3, 5), "1 to 3"), (6, (7, 9), "8 to 16")]
)
def test_a_resume_whose_step_would_be_of_another_stage_is_refused(scene, cut, now, steps):
    scene.run(spec=STAGES)
    name = "imitate" if cut == 4 else "reinforce"
    problem = rf"its step {cut} is of stage {name}, whose steps are {steps} in.*it was run with: .*/run/spec\.yaml and"
    with pytest.raises(CheckpointError, match=problem):
        scene.run(*lengths(*now), spec=STAGES, resume=scene.checkpoint(cut))


@pytest.mark.parametrize(
    ("cut", "now", "stages"),
    [
        (2, (3, 4), ["imitate", "reinforce", "reinforce", "reinforce", "reinforce"]),
        (4, (5, 1), ["imitate", "reinforce"]),
        (6, (6, 2), ["reinforce", "reinforce"]),
        (8, (2, 7), ["reinforce"]),
    ],
)
def test_a_resume_goes_on_in_the_stage_of_its_checkpoint_whatever_the_lengths_are_now(scene, cut, now, stages):
    scene.run(spec=STAGES)
    summary = scene.run(*lengths(*now), spec=STAGES, resume=scene.checkpoint(cut))
    assert (summary.outcome, summary.steps) == ("done", sum(now))
    assert [line["stage"] for line in scene.lines("metrics.jsonl")[cut:]] == stages


def test_a_stopped_run_goes_on_with_every_group_trained_on_once(scene):
    stopped = scene.run(SLOW, meddle=stop_at(7))
    assert stopped.outcome == "stopped"
    assert 7 <= stopped.steps < 20
    scene.run(SLOW, resume=checkpoint.latest(scene.folder / "run"))
    assert [line["step"] for line in scene.lines("metrics.jsonl")] == list(range(1, 21))
    assert sorted(_sequences(scene)) == list(range(80))


@pytest.mark.parametrize("when", ["stage reinforce", "stage imitate"])
def test_a_run_that_is_stopped_between_two_stages_goes_on_with_the_next(scene, when):
    class Stops(type(scene.log)):
        def phase(self, text):
            if text == when and scene.controller is not None and not scene.controller._run.stop.asked:
                asyncio.get_running_loop().call_soon(scene.controller.stop, "enough")

    stopped = scene.run("executor.mock.latency={begin_stage: 1, publish: 1}", spec=STAGES, log=Stops())
    assert stopped.steps == (4 if when == "stage reinforce" else 0)
    if stopped.steps:
        scene.run(spec=STAGES, resume=checkpoint.latest(scene.folder / "run"))
        assert [line["step"] for line in scene.lines("metrics.jsonl")] == list(range(1, 10))


def test_what_was_finished_or_under_way_when_a_run_stopped_is_in_its_checkpoint(scene):
    scene.run(SLOW, meddle=stop_at(7))
    state = json.loads((checkpoint.latest(scene.folder / "run") / "pipeline.json").read_text())
    kept = {group["sequence"] for group in state["buffered"]} | {sequence for sequence, _ in state["under_way"]}
    assert kept | set(_sequences(scene)) == set(range(state["drawn"]["groups"]))


def test_the_bound_holds_after_a_resume(scene):
    scene.run(SLOW, "pipeline.max_staleness=2", meddle=stop_at(7))
    scene.run(SLOW, "pipeline.max_staleness=2", resume=checkpoint.latest(scene.folder / "run"))
    assert max(line["lag/max"] for line in scene.lines("metrics.jsonl")) <= 2


AHEAD = ("checkpoint={every: 4, keep: 100}", "pipeline.max_staleness=4", "executor.mock.latency={train: 8}", SLOW)
SMALLER = {
    "a smaller bound": ("pipeline.max_staleness=1",),
    "no staleness": ("pipeline.max_staleness=0",),
    "smaller batches": ("training.batch_size=4",),
    "smaller batches and a smaller bound": ("training.batch_size=8", "pipeline.max_staleness=1"),
    "larger groups": ("objective.group_size=8",),
    "smaller groups": ("objective.group_size=2",),
    "fewer steps": ("training.max_steps=9",),
}


@pytest.mark.parametrize("on_stale", ["wait", "drop"])
@pytest.mark.parametrize("changed", SMALLER)
def test_a_resume_gives_up_what_does_not_fit_its_new_bound(scene, watched, changed, on_stale):
    scene.run(*AHEAD)
    options = (f"pipeline.on_stale={on_stale}", *SMALLER[changed])
    summary = scene.run(*AHEAD, *options, resume=scene.checkpoint(8))
    steps = 9 if changed == "fewer steps" else 20
    assert (summary.outcome, summary.steps) == ("done", steps)
    program = scene.controller._composition.stages[0]
    trained = [line for line in scene.lines("trajectories/steps-0000001-0000100.jsonl") if line["step"] > 8]
    assert {len(line["trajectories"]) for line in trained} == {program.group_size}
    assert len(trained) == (steps - 8) * program.bound.groups
    lags = [line["lag/max"] for line in scene.lines("metrics.jsonl")[8:]]
    assert max(lags) <= program.bound.max_staleness


@pytest.mark.parametrize(
    ("changed", "cause"), [("no staleness", "stale"), ("larger groups", "resized"), ("fewer steps", "surplus")]
)
def test_what_a_resume_gives_up_is_counted_by_its_cause(scene, changed, cause):
    scene.run(*AHEAD)
    state = json.loads((scene.checkpoint(8) / "pipeline.json").read_text())
    held = state["under_way"] if cause == "surplus" else state["buffered"] + state["partial"]
    scene.run(*AHEAD, *SMALLER[changed], resume=scene.checkpoint(8))
    assert 0 < scene.lines("metrics.jsonl")[8][f"dropped/{cause}"] <= 4 * len(held)


def test_a_resume_under_the_same_bound_gives_up_nothing(scene):
    scene.run(*AHEAD)
    scene.run(*AHEAD, resume=scene.checkpoint(8))
    assert sorted(_sequences(scene)) == list(range(80))


def test_tokens_drawn_after_a_resume_are_of_a_new_incarnation(scene):
    scene.run(SLOW, meddle=stop_at(7))
    scene.run(SLOW, resume=checkpoint.latest(scene.folder / "run"))
    last = scene.lines("trajectories/steps-0000001-0000100.jsonl")[-1]
    assert last["trajectories"][0]["version"].startswith("1.")


def test_lines_of_steps_after_the_checkpoint_are_forgotten(scene):
    scene.run(SLOW, EVERY, name="whole")
    resumed = copy(scene, 8, "whole", "cut")
    scene.run(SLOW, EVERY, name="cut", resume=resumed, meddle=stop_at(9))
    for file in ("metrics.jsonl", "timings.jsonl"):
        steps = [line["step"] for line in scene.lines(file, "cut")]
        assert steps == list(range(1, len(steps) + 1))
        assert len(steps) < 20


def test_a_run_that_goes_on_from_an_earlier_checkpoint_keeps_its_own_and_leaves_the_others_aside(scene):
    scene.run("checkpoint={every: 4, keep: 100}", "training.max_steps=12")
    scene.run("checkpoint={every: 2, keep: 1}", "training.max_steps=8", resume=scene.checkpoint(4))
    names = {path.name for path in (scene.folder / "run" / "checkpoints").iterdir()}
    assert names == {"step-8", "abandoned-step-8", "abandoned-step-12"}
    assert checkpoint.latest(scene.folder / "run") == scene.checkpoint(8)


def test_the_trace_of_a_resumed_run_is_one_valid_file(scene):
    scene.run(SLOW, meddle=stop_at(7))
    scene.run(SLOW, resume=checkpoint.latest(scene.folder / "run"))
    events = json.loads((scene.folder / "run" / "trace.json").read_text())
    trained = [event["args"]["step"] for event in events if event.get("name") == "train"]
    assert trained == list(range(1, 21))
    starts = [event["ts"] for event in events if event.get("name") == "train"]
    assert starts == sorted(starts)


def test_more_steps_than_before_go_on_from_the_last_checkpoint(scene):
    scene.run()
    summary = scene.run("training.max_steps=25", resume=checkpoint.latest(scene.folder / "run"))
    assert summary.steps == 25


def test_a_warm_start_begins_with_a_checkpoints_weights(scene):
    scene.run("training.max_steps=1", "evaluation={samples: 8, before: true}", name="first")
    (scene.checkpoint(1, "first") / "config.json").write_text('{"steps": 0, "model_type": "mock"}')
    summary = scene.run("training.max_steps=1", warm_start=scene.checkpoint(1, "first"))
    assert summary.outcome == "done"


def test_a_run_that_is_complete_says_how_to_go_on(scene):
    scene.run("training.max_steps=2")
    with pytest.raises(CheckpointError, match=r"all 2 steps of the run are done; raise training\.max_steps to go on"):
        scene.run("training.max_steps=2", resume=checkpoint.latest(scene.folder / "run"))


def test_a_checkpoint_of_another_experiment_is_refused(scene):
    scene.run("training.max_steps=2")
    run = scene.folder / "run"
    with pytest.raises(CheckpointError, match="of another experiment: its seed is 3, the spec's 4") as problem:
        scene.run("seed=4", resume=checkpoint.latest(run))
    assert f"they are in {run}/spec.yaml and {run}/provenance.json; or begin" in str(problem.value)
    assert f"a new run with --warm-start {run}/checkpoints/step-2)" in str(problem.value)


def test_a_damaged_checkpoint_is_named(scene):
    scene.run("training.max_steps=2")
    (scene.checkpoint(2) / "buffer.npz").write_bytes(b"PK nothing")
    with pytest.raises(CheckpointError, match=r"step-2/buffer\.npz: is damaged"):
        scene.run(resume=checkpoint.latest(scene.folder / "run"))


def test_a_run_directory_without_a_checkpoint_is_named(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        checkpoint.latest(tmp_path)
    with pytest.raises(CheckpointError, match=r"checkpoints: is no run directory \(give RUN or RUN/checkpoints/step-N"):
        checkpoint.latest(tmp_path / "checkpoints")


def test_a_checkpoint_that_was_not_finished_is_not_found(scene):
    scene.run("training.max_steps=2")
    (scene.folder / "run" / "checkpoints" / ".step-3.new").mkdir()
    (scene.folder / "run" / "checkpoints" / "step-9").mkdir()
    assert checkpoint.latest(scene.folder / "run").name == "step-2"


def _sequences(scene, name="run"):
    return [line["sequence"] for line in scene.lines("trajectories/steps-0000001-0000100.jsonl", name)]


def _trained(scene, name):
    """The trajectories of every step, but for the incarnation of their versions."""
    lines = scene.lines("trajectories/steps-0000001-0000100.jsonl", name)
    return json.loads(json.dumps(lines).replace('"1.', '"0.'))


def _without_incarnation(lines):
    return json.loads(json.dumps(lines).replace('"1.', '"0.'))
