"""A run under fire: starts it, strikes its processes by name, takes it up again, and looks for what it leaves."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import psutil
from _history import lines
from attrs import define, field

MARK = "AREAL_CHAOS"
"""A variable that all processes of a run inherit, by which they are found whoever their parent is now."""

ENDS_WITHIN = 30.0
"""Seconds after which a worker without its controller counts as left behind."""
CONTINUED_AFTER = 10.0
"""Seconds after which one that was stopped from here, and that nobody continued, is: it must end then."""
POLL = 0.05
_WORKER = re.compile(r"(trainer|engine|rollout)(-\d+)?")


class Failed(Exception):
    """The run cannot go on; says why."""


@define
class Siege:
    """One run. Its sockets and temporary files go to folders of its own, in which nothing may be left at the end."""

    spec: Path
    run: Path
    resumes: int = 0
    """After the controller was killed from here."""
    recoveries: int = 0
    """After it gave up by itself, saying how to go on."""
    orphans: list[float] = field(factory=list)
    """Seconds until the last worker was gone, of each killed controller."""
    stopped: set[int] = field(factory=set)
    """Processes that were stopped from here."""
    continued: int = 0
    """Stopped ones that neither their controller nor the kernel ended, or woke so that they end."""
    _began: float = 0.0
    controller: subprocess.Popen[bytes] = field(init=False)
    temporary: Path = field(factory=lambda: Path(tempfile.mkdtemp(prefix="chaos-")))
    shared: Path = field(factory=lambda: Path(tempfile.mkdtemp(prefix="chaos-", dir="/dev/shm")))
    _mark: str = field(factory=lambda: secrets.token_hex(8))

    def start(self) -> None:
        """Begin, or go on from the last checkpoint."""
        there = list((self.run / "checkpoints").glob("step-*"))
        self._began = time.time()
        if not there:
            shutil.rmtree(self.run, ignore_errors=True)
        where = ["--resume" if there else "--run-dir", str(self.run)]
        options = ["--set", f"weights.shm.directory={self.shared}"]
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(self.run.with_name("inductor"))}  # torch keeps it between processes
        environment = {**os.environ, **cache, MARK: self._mark, "TMPDIR": str(self.temporary)}
        with self.output.open("ab") as output:
            self.controller = subprocess.Popen(
                [sys.executable, "-m", "areal_plugins", "run", str(self.spec), *where, *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
            )

    @property
    def output(self) -> Path:
        """What the controllers say."""
        return self.run.with_name(f"{self.run.name}.log")

    @property
    def step(self) -> int:
        """Steps that are recorded now; none before this controller has touched what the one before wrote."""
        path = self.run / "metrics.jsonl"
        if not path.exists() or path.stat().st_mtime < self._began:
            return 0
        recorded = lines(path)
        return recorded[-1]["step"] if recorded else 0

    def reach(self, step: int, deadline: float) -> bool:
        """Whether the run recorded so many steps before it ended. One that gave up is taken up again."""
        while self.step < step:
            if self.controller.poll() is not None and not self.go_on():
                return False
            if time.monotonic() > deadline:
                raise Failed(f"no progress: at step {self.step}, waiting for step {step}")
            time.sleep(POLL)
        return True

    def finish(self, deadline: float) -> None:
        """Return once the run is done."""
        while self.controller.poll() is None or self.go_on():
            if time.monotonic() > deadline:
                raise Failed(f"no end: at step {self.step}")
            time.sleep(POLL)

    def go_on(self) -> bool:
        """Take up a run that gave up; False for one that is done."""
        code = self.controller.returncode
        if code == 0:
            return False
        said = self.output.read_text()[-2000:]
        if not any(way in said for way in ("go on with: ", "there is no checkpoint yet; begin again with: ")):
            raise Failed(f"the run ended with {code}:\n{said}")
        self.recoveries += 1
        self.start()
        return True

    def workers(self, role: str) -> list[psutil.Process]:
        """Those of a role (`trainer`, `engine`, `rollout`, or `preload` for what they are forked from)."""
        return [process for process in self.processes() if _role(process) == role]

    def processes(self) -> list[psutil.Process]:
        """Everything that belongs to the run and has not ended."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def strike(self, victim: psutil.Process, number: signal.Signals) -> None:
        """Send it a signal."""
        with suppress(psutil.NoSuchProcess):
            victim.send_signal(number)
            if number is signal.SIGSTOP:
                self.stopped.add(victim.pid)

    def behead(self) -> None:
        """Kill the controller, see its workers end by themselves, and go on."""
        self.controller.kill()
        self.controller.wait()
        began = time.monotonic()
        while left := self.processes():
            if time.monotonic() > began + ENDS_WITHIN:
                raise Failed(f"without their controller these did not end: {left}")
            if time.monotonic() > began + CONTINUED_AFTER:
                self._continue(left)
            time.sleep(POLL)
        self.orphans.append(time.monotonic() - began)
        self.resumes += 1
        self.start()

    def doze(self, seconds: float) -> list[str]:
        """Stop the controller for a while; which workers it then blames."""
        before = self.losses()
        self.controller.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.controller.send_signal(signal.SIGCONT)
        time.sleep(seconds)
        return self.losses()[len(before) :]

    def losses(self) -> list[str]:
        """What became of workers, as the run saw it."""
        return [event["message"] for event in lines(self.run / "events.jsonl") if event["kind"] == "worker-lost"]

    def left(self) -> list[str]:
        """What is still there after the end, and should not be."""
        found = [f"process {process}" for process in self.processes()]
        found += [f"file {path}" for folder in (self.temporary, self.shared) for path in folder.rglob("*")]
        sockets = Path("/proc/net/unix").read_text().splitlines()
        return found + [f"socket {line.split()[-1]}" for line in sockets if str(self.temporary) in line]

    def end(self) -> None:
        """Kill what is left, and remove the folders."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        for folder in (self.temporary, self.shared):
            shutil.rmtree(folder, ignore_errors=True)

    def _continue(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            if process.pid in self.stopped:
                self.stopped.remove(process.pid)
                self.strike(process, signal.SIGCONT)
                self.continued += 1

    def _ours(self, process: psutil.Process) -> bool:
        try:
            return process.status() != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == self._mark
        except psutil.Error:
            return False


def _role(process: psutil.Process) -> str:
    """A forked worker has its name as its title, one that was started afresh has it on its command line."""
    try:
        command, title = process.cmdline(), process.name()
    except psutil.Error:
        return ""
    name = command[command.index("--name") + 1] if "--name" in command else title
    if found := _WORKER.fullmatch(name):
        return found[1]
    return "preload" if any(part.endswith("executors.nursery") for part in command) else ""
