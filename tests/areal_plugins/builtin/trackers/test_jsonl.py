from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from areal_core.contexts import RunInfo, TrackerContext
from areal_core.data import NO_VERSION, TaskRef, Trajectory, TrajectoryGroup, WeightVersion
from areal_plugins.builtin.trackers import JsonlOptions
from areal_plugins.builtin.trackers.jsonl import JsonlTracker, run_lengths


def code(step: int) -> int:
    return WeightVersion(0, step).code


def trajectory(member: int = 0, reward: float = 1.0) -> Trajectory:
    """Two prompt tokens and three drawn ones, the last of them under newer weights."""
    return Trajectory(
        member=member,
        columns={
            "tokens": np.array([5, 6, 7, 8, 9], dtype=np.int32),
            "mask": np.array([0, 0, 1, 1, 1], dtype=np.uint8),
            "logprobs": np.zeros(5, dtype=np.float32),
            "versions": np.array([NO_VERSION, NO_VERSION, code(3), code(3), code(4)]),
        },
        prompt_length=2,
        reward=reward,
        finish="stop",
        scores={"format": 0.5},
        prompt="1+1=",
        answer="2\n",
    )


def group(sequence: int = 0, *members: Trajectory) -> TrajectoryGroup:
    return TrajectoryGroup(sequence, TaskRef("math", "train", 17), members or (trajectory(),))


@pytest.fixture
def context(tmp_path: Path) -> TrackerContext:
    return TrackerContext(RunInfo("run", tmp_path, 0))


def collect(context: TrackerContext, *groups: TrajectoryGroup, tokens: bool = True) -> None:
    tracker = JsonlTracker(JsonlOptions(tokens=tokens), context)
    for each in groups:
        tracker.group(each)
    tracker.close()


def lines(context: TrackerContext, name: str = "rollouts-00000000-00000999.jsonl") -> list[dict[str, Any]]:
    text = (context.run.directory / "trajectories" / name).read_text()
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_a_trajectory_is_one_object(context: TrackerContext) -> None:
    collect(context, group(3))
    assert lines(context) == [
        {
            "sequence": 3,
            "member": 0,
            "task": {"environment": "math", "split": "train", "index": 17},
            "reward": 1.0,
            "scores": {"format": 0.5},
            "finish": "stop",
            "prompt": "1+1=",
            "answer": "2\n",
            "prompt_length": 2,
            "tokens": [5, 6, 7, 8, 9],
            "versions": [[None, 2], ["0.3", 2], ["0.4", 1]],
        }
    ]


def test_a_group_is_on_disk_as_soon_as_it_is_recorded(context: TrackerContext) -> None:
    tracker = JsonlTracker(JsonlOptions(), context)
    tracker.group(group(0, trajectory(0), trajectory(1)))
    assert [line["member"] for line in lines(context)] == [0, 1]
    tracker.close()


def test_token_ids_can_be_left_out(context: TrackerContext) -> None:
    collect(context, group(), tokens=False)
    (line,) = lines(context)
    assert not {"tokens", "versions"} & set(line)


def test_files_hold_a_thousand_groups(context: TrackerContext) -> None:
    collect(context, group(999), group(1000), group(998))
    assert [line["sequence"] for line in lines(context)] == [999, 998]
    assert [line["sequence"] for line in lines(context, "rollouts-00001000-00001999.jsonl")] == [1000]


def test_a_resumed_run_goes_on_after_the_last_whole_line(context: TrackerContext) -> None:
    collect(context, group(0))
    path = context.run.directory / "trajectories" / "rollouts-00000000-00000999.jsonl"
    with path.open("a") as file:
        file.write('{"sequence": 1, "mem')
    collect(context, group(1))
    assert [line["sequence"] for line in lines(context)] == [0, 1]


def test_what_is_not_finite_is_null(context: TrackerContext) -> None:
    collect(context, group(0, trajectory(reward=float("nan"))))
    assert lines(context)[0]["reward"] is None


def test_a_classic_policys_trajectory_has_no_tokens(context: TrackerContext) -> None:
    columns = {"mask": np.ones(2, dtype=np.uint8), "versions": np.array([code(1), code(1)])}
    step = Trajectory(0, columns, prompt_length=0, reward=0.0, finish="stop", unit="step")
    collect(context, group(0, step))
    (line,) = lines(context)
    assert "tokens" not in line
    assert line["versions"] == [["0.1", 2]]


def test_run_lengths_add_up() -> None:
    versions = np.array([NO_VERSION, code(1), code(1), NO_VERSION, code(2)])
    assert run_lengths(versions) == [(None, 1), ("0.1", 2), (None, 1), ("0.2", 1)]


def test_figures_are_left_to_the_pipeline(context: TrackerContext) -> None:
    tracker = JsonlTracker(JsonlOptions(), context)
    tracker.log(1, {"loss": 1.0})
    tracker.evaluation(1, {"accuracy": 1.0})
    tracker.close()
    assert [path.name for path in context.run.directory.rglob("*")] == ["trajectories"]
