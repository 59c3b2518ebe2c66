from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from areal_core.pipeline.staleness import Ledger
from areal_core.workers.rollout import RolloutService

DEMONSTRATE = """
name: staged
seed: 1
model: mock
platform: mock
executor: {type: mock, mock: {latency: {train: 1.0, publish: 0.1, prepare: 0.1}}}
inference: {type: mock, max_concurrent: 16, mock: {token_seconds: 0.02, longest: 100}, sampling: {max_new_tokens: 1000}}
training: {backend: mock, batch_size: 16, optimizer: mock}
weights: {type: mock}
objective: {type: grpo, group_size: 4}
environments: [{name: numbers, type: mock, reward: mock}]
evaluation: {samples: 8, every: 2}
trackers: []
stages:
  - {name: imitate, objective: sft, training: {max_steps: 5}}
  - {name: reinforce, training: {max_steps: 6}, pipeline: {max_staleness: 1}}
"""

LATENCIES = {
    "training is slow": ("executor.mock.latency={train: 3.0, publish: 0.3, prepare: 0.2, commit: 0.1}",),
    "generation is slow": ("inference.mock.token_seconds=0.3", "inference.mock.latency.load_weights=0.5"),
    "rewards are slow": (
        "environments=[{type: mock, reward: mock, latency: {run: {distribution: uniform, most: 20}}}]",
        "inference.max_concurrent=4",
    ),
    "weights are slow": ("executor.mock.latency={train: 0.1, publish: 1.0, prepare: 4.0, commit: 2.0}",),
    "all workers are several": ("resources={infer: {num_gpus: 3}, rollout: {cpus: 4}}", "inference.max_concurrent=8"),
}


def sequences(scene, name="run"):
    files = sorted((scene.folder / name / "trajectories").iterdir())
    return [line["sequence"] for file in files for line in scene.lines(f"trajectories/{file.name}", name)]


def test_a_run_trains_every_step_and_writes_one_line_each(scene):
    summary = scene.run()
    assert (summary.outcome, summary.steps) == ("done", 20)
    for file in ("metrics.jsonl", "timings.jsonl"):
        assert [line["step"] for line in scene.lines(file)] == list(range(1, 21))


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize("staleness", [0, 1, 4])
@pytest.mark.parametrize("on_stale", ["wait", "drop"])
def test_the_bound_holds_at_every_event_and_for_every_trained_token(scene, watched, latency, staleness, on_stale):
    scene.run(f"pipeline={{max_staleness: {staleness}, on_stale: {on_stale}}}", *LATENCIES[latency])
    lags = [line["lag/max"] for line in scene.lines("metrics.jsonl")]
    assert len(lags) == 20
    assert max(lags) <= staleness
    assert watched


@pytest.mark.parametrize("latency", LATENCIES)
@pytest.mark.parametrize(("every", "staleness"), [(2, 1), (2, 4), (3, 2)])
@pytest.mark.parametrize("on_stale", ["wait", "drop"])
def test_the_bound_holds_with_fewer_versions_than_steps(scene, watched, latency, every, staleness, on_stale):
    pipeline = f"pipeline={{max_staleness: {staleness}, on_stale: {on_stale}}}"
    scene.run(f"weights.every={every}", pipeline, *LATENCIES[latency])
    lags = [line["lag/max"] for line in scene.lines("metrics.jsonl")]
    assert len(lags) == 20
    assert max(lags) <= staleness
    assert published(scene) == [0, *range(every, 20, every), 20]


def test_an_evaluation_sees_the_weights_of_its_step_though_no_version_was_due(scene):
    scene.run("weights.every=4", "evaluation={every: 6, samples: 8, before: false}")
    assert [report.versions[0] for report in scene.log.evaluations] == ["0.6", "0.12", "0.18", "0.20"]
    assert published(scene) == [0, 4, 6, 8, 12, 16, 18, 20]


def test_the_time_that_a_version_took_is_told_once(scene):
    scene.run("weights.every=4")
    told = [line["publish"] for line in scene.lines("timings.jsonl")]
    assert sum(told) == pytest.approx(
        0.1 * 5, abs=1e-3
    )  # versions 0, 4, 8, ...; the last one comes after the last line
    assert told.count(0.0) == 15


def published(scene):
    """The steps of the versions that were made, in order."""
    spans = [span for span in scene.trace() if span["name"] == "publish"]
    return [int(span["args"]["version"].partition(".")[2]) for span in spans]


def test_no_staleness_trains_each_group_in_the_order_of_submission(scene):
    scene.run("pipeline.max_staleness=0")
    assert sequences(scene) == list(range(80))
    assert {line["lag/max"] for line in scene.lines("metrics.jsonl")} == {0.0}


def test_waiting_trains_on_everything_that_was_generated(scene):
    scene.run("inference.mock.token_seconds=0.2")
    assert sorted(sequences(scene)) == list(range(80))
    assert scene.lines("metrics.jsonl")[-1]["sample_utilization"] == 1.0


def test_dropping_counts_what_was_too_old_and_replaces_it(scene):
    scene.run(
        "pipeline={max_staleness: 1, on_stale: drop}", "inference.mock={token_seconds: 0.2, longest: 200, shortest: 2}",
        "executor.mock.latency={train: 0.1}", "inference.max_concurrent=64",
    )  # fmt: skip
    dropped = sum(line.get("dropped/stale", 0) for line in scene.lines("metrics.jsonl"))
    events = [event for event in scene.log.events if event.kind == "dropped"]
    assert dropped > 0
    assert sum(event.data["trajectories"] for event in events) == dropped
    assert all(event.data["longest"] > 0 and event.data["cause"] == "stale" for event in events)
    assert len(set(sequences(scene))) == 80


def test_running_answers_go_on_under_new_weights_token_by_token(scene):
    scene.run("inference.mock.token_seconds=0.1")
    lags = [line["lag/mean"] for line in scene.lines("metrics.jsonl")]
    assert any(lag % 1 for lag in lags), "some answers hold tokens of several versions; the mock trainer checked them"


def test_engines_that_cannot_be_interrupted_finish_under_the_old_weights(scene):
    scene.run("inference.mock.token_seconds=0.1", "pipeline.interruptible=false")
    assert len(scene.lines("metrics.jsonl")) == 20


def test_a_queue_size_limits_the_groups_under_way(scene, monkeypatch):
    most = []
    admit = Ledger.admit
    monkeypatch.setattr(Ledger, "admit", lambda self, *a, **k: (admit(self, *a, **k), most.append(self.running)))
    scene.run("pipeline.queue_size=5")
    assert max(most) == 5


def test_stages_follow_one_another_in_one_count_of_steps(scene):
    scene.run(spec=DEMONSTRATE)
    lines = scene.lines("metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 12))
    assert Counter(line["stage"] for line in lines) == {"imitate": 5, "reinforce": 6}


def test_demonstrations_need_no_engine_and_single_trajectories(scene):
    scene.run(spec=DEMONSTRATE)
    first = scene.lines("trajectories/steps-0000001-0000100.jsonl")[0]
    assert first["trajectories"][0]["answer"].startswith("it is ")
    assert len(first["trajectories"]) == 1


def test_environments_may_change_hands_while_an_evaluation_runs(scene):
    stages = "stages=[{name: a, objective: sft, training: {max_steps: 2}}, {name: b, training: {max_steps: 2}, "
    stages += "environments: [{name: others, type: mock, reward: mock}]}]"
    scene.run(stages, "inference.mock.token_seconds=0.5", spec=DEMONSTRATE)
    found = [list(line["environments"]) for line in scene.lines("evaluations.jsonl")]
    assert found == [["numbers"], ["numbers"], ["others"]]


def test_a_stage_after_demonstrations_starts_from_the_trained_weights(scene):
    scene.run(spec=DEMONSTRATE)
    lines = scene.lines("trajectories/steps-0000001-0000100.jsonl")
    versions = {t["version"] for line in lines if line["step"] > 5 for t in line["trajectories"]}
    assert "0.5" in versions
    assert not versions & {"0.0", "0.1", "0.2", "0.3", "0.4"}


def test_evaluation_runs_before_in_between_and_after(scene):
    scene.run("evaluation={samples: 8, every: 6}")
    lines = scene.lines("evaluations.jsonl")
    assert [line["step"] for line in lines] == [0, 6, 12, 18, 20]
    assert lines[0]["versions"] == ["0.0", "0.0"]
    assert lines[-1]["versions"] == ["0.20", "0.20"]
    assert lines[-1]["environments"]["numbers"]["reward"] == pytest.approx(0.2)


def test_evaluation_says_which_versions_answered(scene):
    scene.run("evaluation={samples: 8, every: 3, before: false, after: false}", "inference.mock.token_seconds=0.2")
    ranges = [line["versions"] for line in scene.lines("evaluations.jsonl")]
    assert any(oldest != newest for oldest, newest in ranges)


def test_evaluation_during_demonstrations_sees_the_trained_weights(scene):
    scene.run(spec=DEMONSTRATE)
    lines = {line["step"]: line["versions"] for line in scene.lines("evaluations.jsonl")}
    assert lines[4][0] == "0.4"


def test_the_summary_tells_accuracy_before_and_after(scene):
    summary = scene.run("evaluation={samples: 8}")
    assert summary.evaluations == {"before/numbers": 0.0, "after/numbers": pytest.approx(0.2)}


def test_the_summary_has_no_accuracy_before_where_none_was_measured(scene):
    summary = scene.run("evaluation={samples: 8, before: false, after: true}")
    assert list(summary.evaluations) == ["after/numbers"]


def test_environments_without_held_out_tasks_are_said_to_be_left_out(scene):
    scene.run("evaluation={samples: 8}", "environments=[{type: mock, reward: mock, test_size: 0}]")
    assert "no-evaluation" in scene.log.kinds()
    assert scene.lines("evaluations.jsonl") == []


def test_groups_not_worth_training_on_are_filtered_and_replaced(scene):
    scene.run(
        "objective={type: dapo, group_size: 4}",
        "environments=[{type: mock, reward: {type: mock, drawn: true, target: 40}}]",
    )
    lines = scene.lines("metrics.jsonl")
    assert len(lines) == 20
    assert sum(line.get("dropped/filtered", 0) for line in lines) > 0


def test_the_last_step_is_always_saved_and_old_checkpoints_go(scene):
    summary = scene.run("checkpoint={every: 3, keep: 2}")
    names = sorted(path.name for path in (scene.folder / "run" / "checkpoints").iterdir())
    assert names == ["step-18", "step-20"]
    assert summary.checkpoint.endswith("step-20")


def test_the_same_seed_gives_the_same_figures_to_the_last_bit(scene):
    scene.run("inference.mock.token_seconds=0.1", name="one", debug=True)
    scene.run("inference.mock.token_seconds=0.1", name="two", debug=True)
    assert scene.metrics("one") == scene.metrics("two")


def test_another_seed_gives_other_figures(scene):
    scene.run(name="one", debug=True)
    scene.run("seed=4", name="two", debug=True)
    assert scene.metrics("one") != scene.metrics("two")


def test_a_run_that_is_done_stays_done_though_a_worker_does_not_close(scene, monkeypatch):
    async def close(self):
        await asyncio.Event().wait()

    monkeypatch.setattr(RolloutService, "close", close)
    assert scene.run(debug=True).outcome == "done"
    assert scene.controller._run.directory.metrics._file._descriptor is None


def test_what_cannot_be_closed_leaves_nothing_else_open(scene):
    async def meddle(controller):
        async def close():
            raise OSError("stale file handle")

        controller._executor.close = close

    with pytest.raises(OSError, match="stale file handle"):
        scene.run(meddle=meddle)
    assert scene.controller._run.directory.metrics._file._descriptor is None
