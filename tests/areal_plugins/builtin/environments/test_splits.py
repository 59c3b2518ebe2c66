import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from areal_core.data import Task
from areal_plugins import InputError
from areal_plugins.builtin.environments.records import Record
from areal_plugins.builtin.environments.splits import Dataset, Reading, position


def question(record: Record) -> str:
    return record.text("q")


def task(record: Record) -> Task:
    return Task(question(record), answer=record.where.rpartition(":")[2])


READING = Reading(question, task)


def write(path: Path, questions: Sequence[str]) -> str:
    path.write_text("".join(json.dumps({"q": q}) + "\n" for q in questions))
    return str(path)


def tasks(data: Dataset, split: str) -> list[Task]:
    return [data.task(split, index) for index in range(data.size(split))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(alphabet="abc", max_size=3), min_size=1, max_size=40), st.floats(0.1, 0.9))
def test_a_fraction_splits_the_tasks_and_never_a_question(
    tmp_path: Path, questions: list[str], fraction: float
) -> None:
    path = write(tmp_path / "tasks.jsonl", questions)
    held_out = {q for q in questions if position(q) < fraction}
    if held_out in (set(), set(questions)):
        with pytest.raises(InputError, match="leaves none for the split"):
            Dataset(path, None, fraction, READING)
        return
    data = Dataset(path, None, fraction, READING)
    train, test = tasks(data, "train"), tasks(data, "test")
    assert {t.prompt for t in test} == held_out
    assert not {t.prompt for t in train} & held_out
    lines = sorted(int(t.answer) for t in train + test)
    assert lines == list(range(1, len(questions) + 1))


def test_about_the_fraction_is_held_out() -> None:
    positions = [position(f"question {n}") for n in range(2000)]
    assert sum(p < 0.1 for p in positions) == pytest.approx(200, abs=50)


def test_a_held_out_task_stays_so_when_the_file_grows(tmp_path: Path) -> None:
    questions = [f"question {n}" for n in range(50)]
    before = Dataset(write(tmp_path / "a.jsonl", questions), None, 0.3, READING)
    after = Dataset(write(tmp_path / "b.jsonl", ["new", *reversed(questions)]), None, 0.3, READING)
    assert {t.prompt for t in tasks(before, "test")} <= {t.prompt for t in tasks(after, "test")}


def test_every_process_holds_out_the_same() -> None:
    code = f"from {position.__module__} import position; print([position(str(n)) for n in range(9)])"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert run.stdout.strip() == str([position(str(n)) for n in range(9)])


def test_a_file_of_its_own_holds_tasks_out(tmp_path: Path) -> None:
    data = Dataset(write(tmp_path / "a.jsonl", ["1", "2"]), write(tmp_path / "b.jsonl", ["3"]), 0.0, READING)
    assert ([t.prompt for t in tasks(data, "train")], [t.prompt for t in tasks(data, "test")]) == (["1", "2"], ["3"])


def test_a_split_that_is_not_there_is_empty(tmp_path: Path) -> None:
    data = Dataset(write(tmp_path / "a.jsonl", ["1"]), None, 0.0, READING)
    assert (data.size("test"), data.size("validation")) == (0, 0)


@pytest.mark.parametrize(("split", "index"), [("train", 1), ("train", -1), ("test", 0)])
def test_there_is_no_task_beyond_the_last(tmp_path: Path, split: str, index: int) -> None:
    data = Dataset(write(tmp_path / "a.jsonl", ["1"]), None, 0.0, READING)
    with pytest.raises(IndexError, match=f"split '{split}' has"):
        data.task(split, index)


@pytest.mark.parametrize("fraction", [0.0, 0.5])
def test_a_bad_record_is_known_before_training(tmp_path: Path, fraction: float) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"q": "1"}\n{"q": null}\n')
    with pytest.raises(InputError, match=r"a\.jsonl:2: 'q' must be a text"):
        Dataset(str(path), None, fraction, READING)
