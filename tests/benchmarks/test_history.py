"""The checker of runs under fire must find what it looks for."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _history import Promise, problems

PROMISE = Promise(steps=3, max_staleness=1, stages={"rl": (3, 2, 2)}, tasks=None)
Files = dict[str, list[dict[str, Any]]]


def group(step: int, sequence: int, version: str) -> dict[str, Any]:
    trajectories = [{"member": member, "version": version} for member in range(2)]
    return {"step": step, "sequence": sequence, "index": sequence, "trajectories": trajectories}


def history() -> Files:
    """Six groups in three steps; the one with place 5 was dropped."""
    places = [(1, 0), (1, 1), (2, 2), (2, 3), (3, 4), (3, 6)]
    return {
        "metrics.jsonl": [{"step": step, "lag/max": 1.0} for step in (1, 2, 3)],
        "trajectories/steps-1.jsonl": [group(step, place, f"1.{step - 1}") for step, place in places],
        "events.jsonl": [{"kind": "dropped", "data": {"cause": "failed", "groups": 1}}],
    }


def check(folder: Path, files: Files) -> list[str]:
    for name, lines in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return problems(folder, PROMISE)


def test_a_sound_history_has_no_problems(tmp_path: Path) -> None:
    assert check(tmp_path, history()) == []


def trained(files: Files) -> list[dict[str, Any]]:
    return files["trajectories/steps-1.jsonl"]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda files: files["metrics.jsonl"].pop(), "holds 2 of 3 steps"),
        (lambda files: files["metrics.jsonl"].append({"step": 3, "lag/max": 0.0}), "twice [3]"),
        (lambda files: files["metrics.jsonl"][0].update({"lag/max": 2.0}), "step 1 has a lag of 2.0"),
        (lambda files: trained(files).pop(), "step 3 was trained on 1 groups, not 2"),
        (lambda files: trained(files)[5].update(sequence=4), "group 4 was trained on 2 times"),
        (lambda files: trained(files)[5].update(index=0), "(epoch, task) (0, 0) was trained on 2 times"),
        (lambda files: trained(files)[4].update(trajectories=[]), "group 4 has the members [], not 2"),
        (lambda files: trained(files)[4]["trajectories"][0].update(version="1.0"), "group 4 lags by 2"),
        (lambda files: trained(files)[0]["trajectories"][0].update(version="1.3"), "group 0 lags by -3"),
        (lambda files: files["events.jsonl"].pop(), "1 groups were neither trained on nor dropped with a cause"),
        (lambda files: files.update({".metrics.jsonl.new": []}), ".metrics.jsonl.new was left behind"),
    ],
)
def test_what_is_broken_is_found(tmp_path: Path, spoil: Callable[[Files], object], problem: str) -> None:
    files = history()
    spoil(files)
    assert any(problem in found for found in check(tmp_path, files))
