"""A debug run on the real engine and trainer, killed by SIGKILL and resumed, to the last bit."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
POINTS = (
    "while a step is trained",
    "between prepare and commit",
    "before a checkpoint has its name",
    "while an evaluation runs beside",
)
SPEC = f"""
name: killed
plugins: [{ROOT / "specs" / "quickstart_task.py"}]
model: {{type: tiny, hidden_size: 32, layers: 1, heads: 2, kv_heads: 1, alphabet: "abcdefghij="}}
platform: cpu
executor: inline
inference: {{type: torch, max_concurrent: 16, sampling: {{max_new_tokens: 4}}}}
training:
  backend: torch
  batch_size: 16
  max_steps: 12
  learning_rate: 1.0e-2
  optimizer: {{type: adamw, warmup_steps: 2, schedule: cosine}}
weights: memory
objective: {{type: grpo, group_size: 4, kl: 0.1}}
environments: [{{type: backwards, letters: 1}}]
pipeline: {{max_staleness: 2}}
evaluation: {{every: 3, samples: 4}}
checkpoint: {{every: 4, keep: 1}}
trackers: []
"""
PROGRAM = """
import json, os, signal, sys
import areal_plugins.builtin.engine.engine, areal_plugins.builtin.trainer.trainer, areal_core.pipeline.controller
import _cuts
from areal_plugins.cli import main

def run(point, argv):
    child = os.fork()  # what takes a second to import is there already
    if not child:
        if point:
            _cuts.cut(_cuts.POINTS[point], lambda: os.kill(os.getpid(), signal.SIGKILL))
        os._exit(main(argv))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(json.dumps([run(*job) for job in json.loads(sys.argv[1])]))
"""


def written(folder):
    """All that a rerun must repeat; which incarnation of the trainer made the weights is no part of it."""
    files = [folder / "metrics.jsonl", folder / "evaluations.jsonl", *sorted((folder / "trajectories").iterdir())]
    return {file.name: re.sub(rb'"\d+\.(\d+)"', rb'"\1"', file.read_bytes()) for file in files}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """How the runs ended: one that nobody kills, and for each point one that is killed and then resumed."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "spec.yaml").write_text(SPEC)
    jobs = [("", ["run", "spec.yaml", "--run-dir", "whole"])]
    for point in POINTS:
        jobs += [(point, ["run", "spec.yaml", "--run-dir", point]), ("", ["run", "spec.yaml", "--resume", point])]
    path = os.pathsep.join([str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "AREAL_DEBUG_MODE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(jobs)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout.splitlines()[-1])
    return folder, dict(zip(POINTS, zip(codes[1::2], codes[2::2], strict=True), strict=True))


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_and_resumed_repeats_the_rest_to_the_last_bit(runs, point):
    folder, codes = runs
    assert codes[point] == (-signal.SIGKILL, 0)
    assert written(folder / point) == written(folder / "whole")
