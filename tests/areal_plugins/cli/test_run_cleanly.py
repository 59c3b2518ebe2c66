"""However a run ends, it leaves no process, socket, shared memory or temporary file, and can be resumed."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from attrs import define, field

pytest.importorskip("torch")

SPEC = """
name: small
model: {type: tiny, hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, alphabet: "0123456789+="}
platform: cpu
inference: {type: torch, max_concurrent: 16, sampling: {max_new_tokens: 3}}
training: {backend: torch, batch_size: 16, max_steps: 100000, learning_rate: 1.0e-3}
objective: {type: grpo, group_size: 4}
environments: [{name: sums, type: jsonl, path: sums.jsonl, test_fraction: 0.2, reward: exact}]
evaluation: {before: false, samples: 4}
"""
PATIENCE = 60.0


@define
class Case:
    """A run in `folder`, with folders of its own for what is temporary (not deep: Unix sockets' paths are short)."""

    folder: Path
    temporary: Path = field(factory=lambda: Path(tempfile.mkdtemp()))

    @contextmanager
    def start(self, *options: str, **streams: object) -> Iterator[subprocess.Popen[str]]:
        """Begin it; a test that fails does not wait for its end. Signals are those of a terminal, not of `nohup`."""
        settings = (*options, "--set", f"weights.shm.directory={self.shared}")
        command = [sys.executable, "-m", "areal_plugins", "run", "spec.yaml", *settings]
        cache = str(self.folder / "inductor")
        places = {"TMPDIR": str(self.temporary), "TORCHINDUCTOR_CACHE_DIR": cache, "CASE": str(self.folder)}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **places}
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **streams}
        given["preexec_fn"] = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with subprocess.Popen(command, cwd=self.folder, env=environment, **given) as process:  # type: ignore[call-overload]
            try:
                yield process
            except BaseException:
                process.kill()
                raise

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    @property
    def steps(self) -> list[int]:
        return [json.loads(line)["step"] for line in (self.folder / "r" / "metrics.jsonl").read_text().splitlines()]

    def left(self) -> list[object]:
        """All that there is beside the run directory; processes get time to end."""
        _, alive = psutil.wait_procs(self.processes(), timeout=PATIENCE)
        files = [path for folder in (self.temporary, self.shared) for path in folder.rglob("*")]
        half = (self.folder / "r" / "checkpoints").glob(".*")
        return [*alive, *files, *half]

    def processes(self) -> list[psutil.Process]:
        """All that belong to the run."""
        return [process for process in psutil.process_iter() if self._mine(process)]

    def _mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("CASE") == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    (tmp_path / "spec.yaml").write_text(SPEC)
    tasks = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    made = Case(tmp_path)
    made.shared.mkdir()
    yield made
    for process in made.processes():
        process.kill()
    shutil.rmtree(made.temporary)


def read_until(process: subprocess.Popen[str], text: str) -> str:
    shown = ""
    assert process.stdout is not None
    while text not in shown:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    return shown


def test_sigterm_leaves_a_checkpoint_and_nothing_else(case: Case) -> None:
    with case.start("--run-dir", "r") as process:
        read_until(process, "step 1/")
        process.send_signal(signal.SIGTERM)
        shown = process.communicate()[0]
    assert process.returncode == 130, shown
    assert (case.folder / "r" / "checkpoints" / f"step-{len(case.steps)}").is_dir()
    assert not case.left()


def test_a_second_ctrl_c_ends_it_at_once(case: Case) -> None:
    with case.start("--run-dir", "r") as process:
        read_until(process, "step 1/")
        process.send_signal(signal.SIGINT)
        read_until(process, "once more ends at once")
        process.send_signal(signal.SIGINT)
        shown = process.communicate()[0]
    assert process.returncode == 130, shown
    assert not case.left()


def test_a_signal_while_workers_start_ends_it(case: Case) -> None:
    with case.start("--run-dir", "r") as process:
        read_until(process, "starting workers")
        process.send_signal(signal.SIGTERM)
        shown = process.communicate()[0]
    assert process.returncode == 130, shown
    assert "nothing was trained yet" in shown
    assert not case.left()


def test_a_controller_that_is_killed_leaves_nothing_but_its_directory(case: Case) -> None:
    with case.start("--run-dir", "r") as process:
        read_until(process, "step 1/")
        process.kill()
        process.communicate()
    assert not case.left()


def test_a_run_that_is_killed_all_at_once_can_be_resumed_and_then_leaves_nothing(case: Case) -> None:
    with case.start("--run-dir", "r", "--set", "checkpoint.every=1") as process:
        read_until(process, "step 1/")
        while not list((case.folder / "r" / "checkpoints").glob("step-*")):
            assert process.poll() is None
        for each in case.processes():
            each.kill()
        process.communicate()
    saved = max(int(path.name[5:]) for path in (case.folder / "r" / "checkpoints").glob("step-*"))
    with case.start("--resume", "r", "--set", f"training.max_steps={saved + 2}") as process:
        shown = process.communicate()[0]
    assert process.returncode == 0, shown
    assert case.steps == list(range(1, saved + 3))
    assert not case.left()


def test_a_closed_terminal_leaves_a_checkpoint(case: Case) -> None:
    ours, theirs = pty.openpty()
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs, "start_new_session": True}
    with case.start("--run-dir", "r", **streams) as process:
        metrics = case.folder / "r" / "metrics.jsonl"
        while not (metrics.exists() and metrics.stat().st_size):
            assert process.poll() is None
            if select.select([ours], [], [], 0.05)[0]:
                os.read(ours, 1 << 16)
        os.close(theirs)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGHUP)
        assert process.wait(PATIENCE) == 130
    assert (case.folder / "r" / "checkpoints" / f"step-{len(case.steps)}").is_dir()
    assert not case.left()
