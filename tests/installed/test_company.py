"""Strangers beside first-party components, in processes: they meet by declared mechanisms, never by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from areal_plugins import cli

SPEC = """
name: company
plugins: [{plugin}]
model: {{type: tiny, dtype: float32, hidden_size: 32, alphabet: "0123456789+="}}
platform: cpu
executor: local
inference: {{type: {engine}, max_concurrent: 8, sampling: {{max_new_tokens: 4}}}}
training: {{batch_size: 8, max_steps: 2, learning_rate: 1.0e-3}}
weights: {transport}
pipeline: {{max_staleness: 0}}
objective: {{type: grpo, group_size: 4}}
environments:
  - {{type: jsonl, path: tasks.jsonl, test_fraction: 0.25, reward: exact}}
evaluation: {{before: false, samples: 4}}
trackers: []
"""


def stranger(kind: str, folder: Path) -> Path:
    """A project as `plugins new` writes it."""
    assert cli.main(["plugins", "new", f"my-{kind}", "--kind", kind, "--dir", str(folder)]) == 0
    return folder / f"areal-plugin-my-{kind}"


@pytest.mark.parametrize(
    ("kind", "engine", "transport"),
    [
        ("transport", "torch", "my-transport"),
        ("engine", "my-engine", "shm"),
        ("engine", "my-engine", "disk"),
    ],
)
def test_a_stranger_works_with_first_party_components(tmp_path, kind, engine, transport):
    project = stranger(kind, tmp_path)
    tasks = [json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(60)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(tasks))
    plugin = f"areal_plugin_my_{kind}"
    (tmp_path / "spec.yaml").write_text(SPEC.format(plugin=plugin, engine=engine, transport=transport))
    path = os.pathsep.join(filter(None, (str(project), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-m", "areal_plugins", "run", "spec.yaml", "--run-dir", "run"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    steps = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    assert steps[-1]["mismatch"] < 1e-4  # the engine drew from the very weights that the trainer had published
    (scored,) = [json.loads(line) for line in (tmp_path / "run" / "evaluations.jsonl").read_text().splitlines()]
    assert scored["step"] == 2
