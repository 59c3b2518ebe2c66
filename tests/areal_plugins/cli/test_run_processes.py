"""A whole run in processes of its own, with the real engine, trainer and transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from areal_plugins.builtin.ownership import run_key

pytest.importorskip("torch")

SPEC = """
name: small
model: {type: tiny, hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, alphabet: "0123456789+="}
platform: cpu
inference: {type: torch, max_concurrent: 16, sampling: {max_new_tokens: 3}}
training: {backend: torch, batch_size: 16, max_steps: 4, learning_rate: 1.0e-3}
objective: {type: grpo, group_size: 4}
environments: [{name: sums, type: jsonl, path: sums.jsonl, test_fraction: 0.2, reward: exact}]
evaluation: {samples: 4}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    tasks = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    return tmp_path


def start(*argv):
    command = [sys.executable, "-m", "areal_plugins", "run", "spec.yaml", *argv]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def test_a_trainer_that_is_killed_comes_back_and_the_run_ends_with_the_steps_asked_for(here):
    options = ("training.max_steps=40", "checkpoint.every=4", "evaluation={before: false, after: false}")
    with start("--run-dir", "r", *(word for option in options for word in ("--set", option))) as process:
        while process.poll() is None and len(lines(here / "r" / "metrics.jsonl")) < 5:
            time.sleep(0.05)
        workers = psutil.Process(process.pid).children(recursive=True)
        trainer = [p for p in workers if str(here / "r" / "logs" / "trainer.log") in (f.path for f in p.open_files())]
        for worker in trainer:
            worker.kill()
        shown = process.stdout.read()
    assert trainer, shown
    assert process.returncode == 0, shown
    assert [line["step"] for line in lines(here / "r" / "metrics.jsonl")] == list(range(1, 41))
    events = {event["kind"]: event["data"] for event in lines(here / "r" / "events.jsonl")}
    assert events["worker-lost"]["reason"] == "trainer: killed by SIGKILL"
    assert events["trainer-restarted"]["step"] >= 4
    trained = [group["sequence"] for path in (here / "r" / "trajectories").glob("steps-*") for group in lines(path)]
    assert sorted(trained) == list(range(160))
    assert not psutil.wait_procs(workers, timeout=30)[1]
    assert not list(Path("/dev/shm").glob(f"areal-weights-{run_key(here / 'r' / 'work' / 'weights')}-*"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
