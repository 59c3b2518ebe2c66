"""A whole run in processes of its own, with the real engine, trainer and transport."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

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


def test_ctrl_c_leaves_a_checkpoint_and_no_process_and_a_resume_finishes_the_run(here):
    with start("--run-dir", "r", "--set", "training.max_steps=100000", "--set", "evaluation.before=false") as process:
        shown = ""
        while "step 1/" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        shown += process.stdout.read()
    assert process.returncode == 130, shown
    assert len(workers) >= 3
    assert not psutil.wait_procs(workers, timeout=30)[1]
    done = len((here / "r" / "metrics.jsonl").read_text().splitlines())
    with start("--resume", "r", "--set", f"training.max_steps={done + 2}") as process:
        shown = process.stdout.read()
    assert process.returncode == 0, shown
    assert "held-out accuracy of sums:" in shown
    steps = [json.loads(line)["step"] for line in (here / "r" / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, done + 3))
    model = transformers.AutoModelForCausalLM.from_pretrained(here / "r" / "checkpoints" / f"step-{done + 2}")
    assert model.config.hidden_size == 16
