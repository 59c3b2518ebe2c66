from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from areal_core.data import Batch, TaskRef, Trajectory, TrajectoryGroup
from areal_core.errors import InputError
from areal_core.pipeline import growing
from areal_core.pipeline.lines import Lines
from areal_core.pipeline.rundir import RunDirectory
from areal_core.pipeline.trace import Trace
from areal_plugins.testing.sim.disk import ROOM, Disk


@pytest.fixture
def full(tmp_path):
    """A disk that can be filled."""
    disk = Disk(tmp_path, lambda event, path, target: None)
    with disk.mounted():
        yield disk


def batch(step, reward=1.0):
    columns = {
        "tokens": np.array([1, 2], np.int32),
        "mask": np.array([0, 1], np.uint8),
        "logprobs": np.zeros(2, np.float32),
        "versions": np.array([-1, step], np.int64),
    }
    trajectory = Trajectory(0, columns, 1, reward, "stop", prompt="2+2=", answer="4")
    return Batch(step, (TrajectoryGroup(step, TaskRef("sums", "train", 3), (trajectory,)),))


def read(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    "name", ["metrics.jsonl", "timings.jsonl", "evaluations.jsonl", "trajectories/steps-0000001-0000100.jsonl"]
)
def test_a_damaged_line_is_named_when_a_run_goes_on(tmp_path, name):
    RunDirectory(tmp_path).close()
    (tmp_path / name).write_text('{"step": 1}\n{"step": \n{"step": 3}\n')
    with pytest.raises(InputError, match=rf"{name}:2: is damaged: "):
        RunDirectory(tmp_path, 3)


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl"])
def test_what_is_in_the_way_is_named(tmp_path, name):
    if name == "checkpoints":
        (tmp_path / name).write_text("")
    else:
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=f"{name}: cannot hold a run: "):
        RunDirectory(tmp_path)


def test_a_damaged_provenance_is_named(tmp_path):
    (tmp_path / "provenance.json").write_text("")
    with pytest.raises(InputError, match=r"provenance\.json: is damaged"):
        RunDirectory(tmp_path).describe({}, {})


def test_every_line_is_on_disk_at_once(tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    lines.add({"step": 1})
    written = read(tmp_path / "lines.jsonl")
    lines.close()
    assert written == [{"step": 1}]


def test_floats_keep_every_bit(tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    values = [0.1, 1e-300, 2 / 3, 1.0, 1e22]
    lines.add({"values": values})
    lines.close()
    assert read(tmp_path / "lines.jsonl")[0]["values"] == values


def test_what_is_not_finite_is_null(tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    lines.add({"loss": float("nan"), "norm": float("inf")})
    lines.close()
    assert read(tmp_path / "lines.jsonl") == [{"loss": None, "norm": None}]


def test_lines_after_the_step_and_half_a_line_are_forgotten(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"step":1}\n{"step":2}\n{"step":3}\n{"st')
    lines = Lines(path, step=2)
    lines.add({"step": 3, "again": True})
    lines.close()
    assert read(path) == [{"step": 1}, {"step": 2}, {"step": 3, "again": True}]


@pytest.mark.parametrize("torn", [b'{"st', b'{"a":"\xc3'])
def test_half_a_line_is_forgotten_where_no_step_is_given(tmp_path, torn):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b'{"step":1}\n' + torn)
    lines = Lines(path)
    lines.add({"step": 2})
    lines.close()
    assert read(path) == [{"step": 1}, {"step": 2}]
    assert [file.name for file in tmp_path.iterdir()] == ["lines.jsonl"]


@pytest.mark.parametrize("text", ["\u2028", "\u2029", "\u0085", "\r\n\v\f\x1c"])
def test_a_line_ends_only_where_it_was_ended_whatever_its_texts_hold(tmp_path, text):
    path = tmp_path / "lines.jsonl"
    for step in (1, 2):
        lines = Lines(path, step=step)
        lines.add({"step": step, "answer": f"4{text}5"})
        lines.close()
    Lines(path, step=1).close()
    assert read(path) == [{"step": 1, "answer": f"4{text}5"}]


def test_lines_after_the_step_are_forgotten_where_they_still_wait_for_room(full, tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    lines.add({"step": 1, "text": "x" * ROOM})
    full.fill()
    for step in (2, 3, 4):
        lines.add({"step": step, "text": "x" * (ROOM // 2)})
    lines.rewind(3)
    with pytest.raises(OSError, match="No space left"):
        lines.sync()
    full.drain()
    lines.sync()
    lines.close()
    assert [line["step"] for line in read(tmp_path / "lines.jsonl")] == [1, 2, 3]


def test_a_line_that_was_cut_short_by_a_full_disk_is_made_whole_or_forgotten_with_its_step(full, tmp_path):
    lines = Lines(tmp_path / "lines.jsonl")
    lines.add({"step": 1})
    full.fill()
    lines.add({"step": 2, "text": "x" * (2 * ROOM)})
    assert not (tmp_path / "lines.jsonl").read_bytes().endswith(b"\n")
    lines.rewind(1)
    lines.close()
    assert read(tmp_path / "lines.jsonl") == [{"step": 1}]


def test_lines_beyond_the_limit_are_refused(full, tmp_path, monkeypatch):
    monkeypatch.setattr(growing, "LIMIT", 10)
    lines = Lines(tmp_path / "lines.jsonl")
    full.fill()
    lines.add({"text": "x" * (2 * ROOM)})
    with pytest.raises(OSError, match="No space left"):
        lines.add({"step": 2})
    full.drain()
    lines.add({"step": 3})
    lines.close()
    assert read(tmp_path / "lines.jsonl")[1:] == [{"step": 3}]


def test_trained_groups_are_written_with_their_step_text_and_version(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.trained(batch(4))
    directory.close()
    line = read(tmp_path / "trajectories" / "steps-0000001-0000100.jsonl")[0]
    assert (line["step"], line["sequence"], line["environment"], line["prompt"]) == (5, 4, "sums", "2+2=")
    assert line["trajectories"] == [
        {"member": 0, "reward": 1.0, "scores": {}, "finish": "stop", "length": 1, "version": "0.4", "answer": "4"}
    ]


def test_a_hundred_steps_share_a_file(tmp_path):
    directory = RunDirectory(tmp_path)
    for step in (0, 99, 100):
        directory.trained(batch(step))
    directory.close()
    names = sorted(path.name for path in (tmp_path / "trajectories").iterdir())
    assert names == ["steps-0000001-0000100.jsonl", "steps-0000101-0000200.jsonl"]


def test_a_run_that_goes_on_forgets_the_trajectories_after_its_step(tmp_path):
    directory = RunDirectory(tmp_path)
    for step in (97, 98, 99, 100, 250):
        directory.trained(batch(step))
    directory.close()
    again = RunDirectory(tmp_path, step=99)
    again.trained(batch(99, reward=0.5))
    again.close()
    lines = read(tmp_path / "trajectories" / "steps-0000001-0000100.jsonl")
    assert [line["step"] for line in lines] == [98, 99, 100]
    assert lines[-1]["trajectories"][0]["reward"] == 0.5
    assert len(list((tmp_path / "trajectories").iterdir())) == 1


def test_a_run_that_goes_on_reads_no_trajectories_but_those_about_its_step(tmp_path):
    directory = RunDirectory(tmp_path)
    for step in (0, 100, 150):
        directory.trained(batch(step))
    directory.close()
    first = tmp_path / "trajectories" / "steps-0000001-0000100.jsonl"
    first.write_text("not for us to read\n")
    RunDirectory(tmp_path, step=101).close()
    assert first.read_text() == "not for us to read\n"
    lines = read(tmp_path / "trajectories" / "steps-0000101-0000200.jsonl")
    assert [line["step"] for line in lines] == [101]


@pytest.fixture
def synced(monkeypatch):
    """What was forced to the disk."""
    synced = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(Path(f"/proc/self/fd/{descriptor}").readlink()))
    return synced


def test_a_checkpoint_finds_every_line_of_its_steps_on_disk_with_the_names_of_their_files(tmp_path, synced):
    directory = RunDirectory(tmp_path)
    for step in (0, 99, 100, 200):
        directory.trained(batch(step))
    directory.metrics.add({"step": 201})
    directory.sync()
    directory.close()
    trajectories = tmp_path / "trajectories"
    assert {*trajectories.iterdir(), trajectories, tmp_path / "metrics.jsonl", tmp_path} <= synced


def test_files_that_are_full_are_synced_once(tmp_path, synced):
    directory = RunDirectory(tmp_path)
    for step in (0, 100):
        directory.trained(batch(step))
    directory.sync()
    synced.clear()
    directory.sync()
    directory.close()
    assert tmp_path / "trajectories" / "steps-0000001-0000100.jsonl" not in synced
    assert tmp_path / "trajectories" / "steps-0000101-0000200.jsonl" in synced


def test_a_runs_origin_is_written_without_secrets(tmp_path):
    directory = RunDirectory(tmp_path)
    directory.describe({"name": "x"}, {"overrides": ["trackers.0.api_key=s3cret", "seed=4"]})
    directory.close()
    assert json.loads((tmp_path / "provenance.json").read_text())["overrides"] == ["trackers.0.api_key=***", "seed=4"]


def test_where_a_run_was_resumed_is_added_to_where_it_came_from(tmp_path):
    for seed in (1, 2, 3):
        directory = RunDirectory(tmp_path)
        directory.describe({}, {"seed": seed})
        directory.close()
    provenance = json.loads((tmp_path / "provenance.json").read_text())
    assert (provenance["seed"], [facts["seed"] for facts in provenance["resumed"]]) == (1, [2, 3])


def test_a_trace_is_json_with_its_times_in_microseconds(tmp_path):
    now = [10.0]
    trace = Trace(lambda: now[0], tmp_path / "trace.json")
    now[0] = 12.5
    assert trace.span("train", "trainer", 11.0, step=1) == 1.5
    trace.overlapping("group", "rollout", 7, 10.5)
    trace.close()
    events = [event for event in json.loads((tmp_path / "trace.json").read_text()) if event["ph"] != "M"]
    assert [(e["ph"], e["ts"]) for e in events] == [("X", 1_000_000), ("b", 500_000), ("e", 2_500_000)]
    assert events[0]["dur"] == 1_500_000


def test_a_trace_that_broke_off_is_continued(tmp_path):
    trace = Trace(lambda: 0.0, tmp_path / "trace.json")
    trace.span("one", "a", 0.0)
    trace.close()
    written = (tmp_path / "trace.json").read_text()
    (tmp_path / "trace.json").write_text(written[: written.index("one")] + 'one","ts":0,"dur":0},\n{"ph":"X","na')
    again = Trace(lambda: 0.0, tmp_path / "trace.json", elapsed=5.0)
    again.span("two", "a", 0.0)
    again.close()
    names = [event["name"] for event in json.loads((tmp_path / "trace.json").read_text()) if event["ph"] == "X"]
    assert names == ["one", "two"]
