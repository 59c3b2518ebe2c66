from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from areal_core.contexts import RunInfo, TrackerContext
from areal_plugins.builtin.trackers import TensorboardOptions
from areal_plugins.builtin.trackers.tensorboard import TensorboardTracker, hidden


@pytest.fixture
def context(tmp_path: Path) -> TrackerContext:
    return TrackerContext(RunInfo("run", tmp_path, 0))


def events(folder: Path) -> Iterator[Any]:
    """The events of every file in `folder`: records of length, checksum, payload, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12 : at + 12 + length])
            at += 12 + length + 4


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    return [(value.tag, event.step, value.simple_value) for event in events(folder) for value in event.summary.value]


def restarts(folder: Path) -> list[int]:
    """Steps from which on TensorBoard hides what was there before."""
    return [event.step for event in events(folder) if event.HasField("session_log")]


def test_figures_become_scalars(context: TrackerContext) -> None:
    tracker = TensorboardTracker(TensorboardOptions(), context)
    tracker.evaluation(0, {"math": 0.25})
    tracker.log(1, {"loss": 0.5, "dropped/stale": 2.0})
    tracker.close()
    assert scalars(context.run.directory / "tensorboard") == [
        ("evaluation/math", 0, 0.25),
        ("train/loss", 1, 0.5),
        ("dropped/stale", 1, 2.0),
    ]


def test_the_directory_can_be_chosen(context: TrackerContext) -> None:
    tracker = TensorboardTracker(TensorboardOptions(directory="logs/tb"), context)
    tracker.log(1, {"loss": 0.5})
    tracker.close()
    assert scalars(context.run.directory / "logs" / "tb") == [("train/loss", 1, 0.5)]


def test_a_resumed_run_hides_what_it_does_again(context: TrackerContext) -> None:
    tracker = TensorboardTracker(TensorboardOptions(), context)
    tracker.log(7, {"loss": 0.5})
    tracker.close()
    assert restarts(context.run.directory / "tensorboard") == [7]


def test_an_evaluation_hides_only_later_steps(context: TrackerContext) -> None:
    tracker = TensorboardTracker(TensorboardOptions(), context)
    tracker.evaluation(7, {"math": 0.5})
    tracker.close()
    assert restarts(context.run.directory / "tensorboard") == [8]


def test_a_run_without_figures_leaves_no_file(context: TrackerContext) -> None:
    TensorboardTracker(TensorboardOptions(), context).close()
    assert list(context.run.directory.iterdir()) == []


def test_it_does_not_load_torch(tmp_path: Path) -> None:
    code = f"""
import sys, pathlib
from areal_core.contexts import RunInfo, TrackerContext
from areal_plugins.builtin.trackers import TensorboardOptions
from areal_plugins.builtin.trackers.tensorboard import TensorboardTracker
tracker = TensorboardTracker(TensorboardOptions(), TrackerContext(RunInfo("run", pathlib.Path({str(tmp_path)!r}), 0)))
tracker.log(1, {{"loss": 1.0}})
tracker.close()
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_was_hidden_can_be_imported_afterwards() -> None:
    sys.modules.pop("this", None)
    with hidden("this"), pytest.raises(ImportError):
        __import__("this")
    assert "this" not in sys.modules


def test_what_is_loaded_stays_loaded() -> None:
    with hidden("json"):
        assert sys.modules["json"] is not None
