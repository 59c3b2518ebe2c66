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
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from attrs import define, field

pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

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
LIGHT = """
name: light
plugins: [areal_plugins.testing.mocks, ./shelf.py]
model: mock
platform: mock
executor: local
inference: {type: mock, max_concurrent: 16}
training: {backend: mock, batch_size: 16, max_steps: 100000, optimizer: mock}
weights: shelf
objective: {type: grpo, group_size: 4}
environments: [{name: numbers, type: mock, reward: mock}]
evaluation: {before: false, after: false}
"""
"""The same processes, without what takes seconds to import."""
SHELF = """
from pathlib import Path
from attrs import frozen
from areal_plugins import TransportCapabilities, TransportDescriptor, hookimpl

@frozen
class Options:
    directory: str

class Shelf:
    def __init__(self, options, context):
        self.folder = Path(options.directory)
    def publish(self, version, weights, save):
        import numpy as np
        from areal_core.data import WeightOffer
        with self.file(version).open("wb") as file:
            np.savez(file, **dict(weights))
        return WeightOffer(version, "shelf", "tensors")
    def receive(self, offer):
        import numpy as np
        return Found(dict(np.load(self.file(offer.version))))
    def release(self, version):
        self.file(version).unlink(missing_ok=True)
    def close(self):
        for path in self.folder.iterdir():
            path.unlink(missing_ok=True)
    def file(self, version):
        return self.folder / f"{version}.npz"

class Found:
    mechanism = "tensors"
    def __init__(self, arrays):
        self.arrays = arrays
    def tensors(self):
        yield from self.arrays.items()

@hookimpl
def areal_weight_transports():
    capabilities = TransportCapabilities(offers=("tensors",), scope="host")
    return (TransportDescriptor(
        name="shelf", summary="Files", factory=f"{__name__}:Shelf", options=Options, capabilities=capabilities
    ),)
"""
"""A transport between processes without torch."""
PATIENCE = 60.0


@define
class Case:
    """A run in `folder`, with folders of its own for what is temporary (not deep: Unix sockets' paths are short)."""

    folder: Path
    transport: str
    temporary: Path = field(factory=lambda: Path(tempfile.mkdtemp()))

    @contextmanager
    def start(self, *options: str, **streams: object) -> Iterator[subprocess.Popen[str]]:
        """Begin it; a test that fails does not wait for its end. Signals are those of a terminal, not of `nohup`."""
        settings = (*options, "--set", f"weights.{self.transport}.directory={self.shared}")
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

    def left(self, killed: bool = False) -> list[object]:
        """All that there is beside the run directory; processes get time to end.

        One that was `killed` may have been in the middle of a save: what that left is for the resumed run to remove.
        """
        _, alive = psutil.wait_procs(self.processes(), timeout=PATIENCE)
        files = [path for folder in (self.temporary, self.shared) for path in folder.rglob("*")]
        return [*alive, *files, *(() if killed else self.checkpoints.glob(".*"))]

    @property
    def checkpoints(self) -> Path:
        return self.folder / "r" / "checkpoints"

    @property
    def saved(self) -> int:
        return max(int(path.name[5:]) for path in self.checkpoints.glob("step-*"))

    def await_checkpoint(self, process: subprocess.Popen[str], known: Collection[Path] = ()) -> None:
        """Return once there is one that was not `known`."""
        while not set(self.checkpoints.glob("step-*")) - set(known):
            assert process.poll() is None
            time.sleep(0.02)

    def finish(self, steps: int) -> str:
        """Resume the run and let it end after so many steps, with nothing left of it; what it says."""
        with self.start("--resume", "r", "--set", f"training.max_steps={steps}") as process:
            shown = process.communicate()[0]
        assert process.returncode == 0, shown
        assert self.steps == list(range(1, steps + 1))
        assert not self.left()
        return shown

    def processes(self) -> list[psutil.Process]:
        """All that belong to the run."""
        return [process for process in psutil.process_iter() if self._mine(process)]

    def _mine(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get("CASE") == str(self.folder) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


def cases(folder: Path, spec: str, transport: str) -> Iterator[Case]:
    """One case, of which nothing is left."""
    (folder / "spec.yaml").write_text(spec)
    (folder / "shelf.py").write_text(SHELF)
    tasks = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10)]
    (folder / "sums.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    made = Case(folder, transport)
    made.shared.mkdir()
    yield made
    for process in made.processes():
        process.kill()
    shutil.rmtree(made.temporary)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    yield from cases(tmp_path, LIGHT, "shelf")


@pytest.fixture
def real_case(tmp_path: Path) -> Iterator[Case]:
    yield from cases(tmp_path, SPEC, "shm")


def read_until(process: subprocess.Popen[str], text: str) -> str:
    shown = ""
    assert process.stdout is not None
    while text not in shown:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    return shown


def test_sigterm_leaves_a_checkpoint_and_nothing_else_and_a_resume_finishes_the_run(real_case: Case) -> None:
    with real_case.start("--run-dir", "r") as process:
        read_until(process, "step 1/")
        assert len(real_case.processes()) >= 4
        process.send_signal(signal.SIGTERM)
        shown = process.communicate()[0]
    assert process.returncode == 130, shown
    done = len(real_case.steps)
    assert (real_case.checkpoints / f"step-{done}").is_dir()
    assert not real_case.left()
    shown = real_case.finish(done + 2)
    assert "held-out accuracy of sums:" in shown
    model = transformers.AutoModelForCausalLM.from_pretrained(real_case.checkpoints / f"step-{done + 2}")
    assert model.config.hidden_size == 16


def test_a_run_whose_processes_are_killed_goes_on_from_its_checkpoint_and_leaves_nothing(real_case: Case) -> None:
    with real_case.start("--run-dir", "r", "--set", "checkpoint.every=1") as process:
        real_case.await_checkpoint(process)
        process.kill()
        process.communicate()
    assert not real_case.left(killed=True)  # the workers have ended by themselves
    before = set(real_case.checkpoints.iterdir())
    with real_case.start("--resume", "r", "--set", "checkpoint.every=1") as process:
        real_case.await_checkpoint(process, before)
        for each in real_case.processes():
            each.kill()
        process.communicate()
    real_case.finish(real_case.saved + 2)


def await_one(folder: Path, pattern: str) -> None:
    """Return once there is a file or folder of such a name."""
    end = time.monotonic() + PATIENCE
    while not list(folder.glob(pattern)):
        assert time.monotonic() < end, f"there is no {pattern}"
        time.sleep(0.02)


def test_a_second_ctrl_c_ends_it_at_once(case: Case) -> None:
    with case.start("--run-dir", "r", "--set", "training.mock.latency={save_state: 60}") as process:
        read_until(process, "step 1/")
        process.send_signal(signal.SIGINT)
        read_until(process, "once more ends at once")
        await_one(case.checkpoints, ".step-*.new")  # it is being written, for a minute
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
    assert "nothing was trained yet; begin again with: areal-plugins run" in shown
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
    assert (case.checkpoints / f"step-{len(case.steps)}").is_dir()
    assert not case.left()
