from __future__ import annotations

import math

import numpy as np
import pytest

from areal_core.data import Trajectory
from areal_core.errors import InputError
from areal_core.pipeline.evaluate import flat, recorded, score, standard_error
from areal_core.pipeline.run import EvaluationReport


def trajectory(reward, finish="stop", **scores):
    columns = {"mask": np.array([0, 1, 1], np.uint8), "versions": np.array([-1, 4, 4], np.int64)}
    return Trajectory(0, columns, 1, reward, finish, scores=scores)


def test_the_standard_error_is_that_of_the_mean():
    assert standard_error([0.0, 1.0, 1.0, 0.0]) == pytest.approx(math.sqrt((4 * 0.25 / 3) / 4))


def test_one_value_has_no_standard_error():
    assert standard_error([1.0]) == 0.0


def test_accuracy_is_the_reward_where_nothing_else_is_said():
    scores = score([trajectory(1.0), trajectory(0.0), trajectory(0.5)])
    assert scores.accuracy == scores.reward == 0.5


def test_accuracy_is_what_the_reward_calls_correct():
    scores = score([trajectory(1.2, correct=1.0, format=1.0), trajectory(0.2, correct=0.0, format=1.0)])
    assert (scores.reward, scores.accuracy) == (pytest.approx(0.7), 0.5)
    assert scores.parts == {"correct": 0.5, "format": 1.0}


def test_a_task_that_failed_is_counted_and_is_in_no_mean():
    scores = score([trajectory(1.0), None])
    assert (scores.tasks, scores.failed, scores.reward) == (2, 1, 1.0)


def test_where_everything_failed_there_is_no_score():
    assert math.isnan(score([None, None]).reward)


def test_lengths_and_truncation_are_of_the_answers():
    scores = score([trajectory(1.0, "length"), trajectory(1.0)])
    assert (scores.length, scores.truncated) == (2.0, 0.5)


def test_figures_are_flat_for_trackers():
    report = EvaluationReport(3, {"math": score([trajectory(1.0, correct=1.0)])}, ("0.3", "0.3"))
    figures = flat(report)
    assert figures["math/accuracy"] == 1.0
    assert figures["math/score/correct"] == 1.0
    assert all(isinstance(value, float) for value in figures.values())


def test_every_environment_gets_an_equal_share_of_the_samples(scene):
    environments = "environments=[{name: a, type: mock, reward: mock, weight: 9}, {name: b, type: mock, reward: mock}]"
    scene.run("training.max_steps=1", "evaluation={samples: 10, before: true}", environments)
    found = scene.lines("evaluations.jsonl")[0]["environments"]
    assert {name: scores["tasks"] for name, scores in found.items()} == {"a": 5, "b": 5}


def test_an_environment_of_no_weight_is_evaluated_too(scene):
    environments = "environments=[{name: a, type: mock, reward: mock}, {name: b, type: mock, reward: mock, weight: 0}]"
    scene.run("training.max_steps=1", "evaluation={samples: 10, before: true}", environments)
    assert list(scene.lines("evaluations.jsonl")[0]["environments"]) == ["a", "b"]


def test_the_same_tasks_are_played_every_time(scene):
    scene.run("training.max_steps=3", "evaluation={samples: 8, every: 1, before: true}", "inference.mock.longest=3")
    lengths = {line["environments"]["numbers"]["length"] for line in scene.lines("evaluations.jsonl")}
    assert len(lengths) == 1, "the mock engine draws the same lengths for the same tasks"


def test_a_task_that_fails_is_left_out_of_the_scores(scene):
    environments = "environments=[{name: a, type: mock, reward: mock, test_size: 4, failing: [2]}]"
    scene.run("training.max_steps=1", "evaluation={samples: 4, before: true}", environments)
    assert scene.lines("evaluations.jsonl")[0]["environments"]["a"]["failed"] == 1


def test_evaluation_does_not_count_as_generated(scene):
    scene.run("evaluation={samples: 16, every: 2, before: true}")
    assert scene.lines("metrics.jsonl")[-1]["sample_utilization"] == 1.0


@pytest.mark.parametrize("line", ["garbage", "[]", '{"step": 2}', '{"step": 2, "environments": 3}'])
def test_a_damaged_line_of_evaluations_is_named(tmp_path, line):
    file = tmp_path / "evaluations.jsonl"
    file.write_text('{"step": 0, "environments": {}}\n' + line + "\n")
    with pytest.raises(InputError, match=r"evaluations\.jsonl:2: is damaged"):
        recorded(file)
