"""The READMEs say the same commands, and the commands do what they say."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READMES = ("README.md", "README.zh-CN.md")


def blocks(file: str, language: str) -> list[str]:
    """Fenced code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / file).read_text(), re.M | re.S)


def commands(block: str) -> list[str]:
    """A block's commands, comments left out."""
    return [line.partition("   #")[0].partition("  #")[0].strip() for line in block.splitlines() if line.strip()]


def opening(file: str) -> list[str]:
    return commands(blocks(file, "sh")[0])


@pytest.mark.parametrize("file", READMES)
def test_a_readme_opens_with_exactly_two_commands(file):
    assert opening(file) == ["pip install tox && tox run -e quickstart", "pip install tox && tox run"]


@pytest.mark.parametrize("language", ["sh", "python", "yaml"])
def test_both_readmes_hold_the_same_code(language):
    english, chinese = (["\n".join(commands(block)) for block in blocks(file, language)] for file in READMES)
    assert english == chinese


def test_ci_runs_the_second_command():
    assert opening("README.md")[1] in (ROOT / ".ci/run").read_text()


def shell(command: str, cwd: Path) -> str:
    """Run one README command with this environment's programs first on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOX_")}
    run = subprocess.run(
        command, shell=True, cwd=cwd, env={**environment, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}"
    return run.stdout


def test_the_first_command_learns_and_says_so(tmp_path):
    command = opening("README.md")[0].partition("&& ")[2]
    run_dir = tmp_path / "run"
    shell(f"{command} --workdir {tmp_path / 'tox'} -- --run-dir {run_dir}", ROOT)
    lines = [json.loads(line) for line in (run_dir / "evaluations.jsonl").read_text().splitlines()]
    before, after = (line["environments"]["backwards"]["accuracy"] for line in (lines[0], lines[-1]))
    assert before < 0.3
    assert after > 0.9
    checkpoint = sorted((run_dir / "checkpoints").iterdir())[-1]
    again = shell(f"areal-plugins eval specs/quickstart.yaml --checkpoint {shlex.quote(str(checkpoint))} --json", ROOT)
    assert json.loads(again)["environments"]["backwards"]["accuracy"] == after


USE = [
    command for command in commands(blocks("README.md", "sh")[2]) if command.split()[1] not in ("run", "eval", "scale")
]


@pytest.mark.parametrize("command", USE)
def test_a_light_command_of_the_readme_works(command, tmp_path):
    shell(command.replace("> areal.schema.json", f"> {tmp_path / 'areal.schema.json'}"), ROOT)


MOCKED = """
name: mocked
plugins: [areal_plugins.testing.mocks, ./brief.py]
model: mock
platform: mock
executor: mock
inference: mock
training: {backend: mock, batch_size: 8, max_steps: 100000, optimizer: mock}
weights: mock
objective: {type: grpo, group_size: 4}
environments: [{type: jsonl, path: tasks.jsonl, test_fraction: 0.1, reward: brief}]
evaluation: {before: false, after: false}
checkpoint: {every: 1}
"""


@pytest.mark.parametrize("file", READMES)
def test_the_readmes_resume_goes_on_after_a_kill_by_the_runs_own_spec(file, tmp_path):
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs/spec.yaml").write_text(MOCKED)
    (tmp_path / "specs/brief.py").write_text(blocks("README.md", "python")[0])
    tasks = [json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(20)]
    (tmp_path / "specs/tasks.jsonl").write_text("\n".join(tasks))
    command = [sys.executable, "-m", "areal_plugins", "run", "specs/spec.yaml", "--run-dir", "runs/NAME"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        checkpoints = tmp_path / "runs/NAME/checkpoints"
        while not list(checkpoints.glob("step-*")):
            assert process.stdout.readline()
        process.kill()
    resume = next(line for line in commands(blocks(file, "sh")[2]) if "--resume" in line)
    dry = shell(f"{resume} --dry-run", tmp_path)
    step = int(re.search(r"^goes on from checkpoints/step-(\d+) \(step \1 of 100000\)$", dry, re.M)[1])
    shell(f"{resume} --set training.max_steps={step + 2}", tmp_path)
    steps = [json.loads(line)["step"] for line in (tmp_path / "runs/NAME/metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(1, step + 3))


def test_the_readmes_plugin_is_found_and_its_spec_accepted(tmp_path):
    (tmp_path / "brief.py").write_text(blocks("README.md", "python")[0])
    (tmp_path / "spec.yaml").write_text(blocks("README.md", "yaml")[0])
    lines = [json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(20)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    found = json.loads(shell("areal-plugins check spec.yaml --format json", tmp_path))
    assert found["errors"] == 0
