from __future__ import annotations

import os
import subprocess
import sys

import pytest

from areal_core.contexts import Place, WorkerSpec
from areal_plugins.builtin.executors import cores

ENGINE = WorkerSpec("engine-0", "engine", Place())
TRAINER = WorkerSpec("trainer", "trainer", Place())
ROLLOUT = WorkerSpec("rollout-0", "rollout", Place())


def test_who_computes_gets_a_core_of_its_own_and_rollouts_may_run_anywhere() -> None:
    assert cores.allot([TRAINER, ENGINE, ROLLOUT], [0, 4, 5]) == {"trainer": 0, "engine-0": 4}


def test_another_run_may_begin_elsewhere() -> None:
    assert cores.allot([TRAINER, ENGINE], [0, 4, 5], first=5) == {"trainer": 5, "engine-0": 0}


@pytest.mark.parametrize(
    ("workers", "available"),
    [
        ([TRAINER, ENGINE], [0]),
        ([TRAINER, WorkerSpec("e", "engine", Place(threads=2))], [0, 1, 2, 3]),
        ([TRAINER, ROLLOUT], [0, 1, 2]),
        ([WorkerSpec("t", "trainer", Place(device="cuda")), ENGINE], [0, 1, 2, 3]),
        ([TRAINER, ENGINE], []),
    ],
    ids=["too few", "several threads", "a single one", "another device", "unknown"],
)
def test_nobody_is_kept_where_there_is_nothing_to_share_out(workers: list[WorkerSpec], available: list[int]) -> None:
    assert cores.allot(workers, available) == {}


@pytest.mark.skipif(not cores.available(), reason="the system keeps no process to some cores")
def test_a_process_stays_on_its_cores_and_one_that_has_ended_does_no_harm() -> None:
    core = cores.available()[-1]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        cores.keep(process.pid, core)
        assert os.sched_getaffinity(process.pid) == {core}
        process.communicate(b"\n")
    cores.keep(process.pid, core)


def test_a_process_that_the_system_does_not_keep_runs_anywhere_and_the_log_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no such thing here")

    monkeypatch.setattr("os.sched_setaffinity", refuse, raising=False)
    cores.keep(os.getpid(), 0)
    assert "cannot be kept to core 0: no such thing here" in caplog.text
