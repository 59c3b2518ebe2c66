"""Workers that are forked from one process which has imported their modules."""

import asyncio
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from areal_core.contexts import ExecutorContext, Place, WorkerSpec
from areal_core.errors import WorkerLost
from areal_core.local import load_file
from areal_plugins.builtin.executors import LocalOptions
from areal_plugins.builtin.executors.local import LocalExecutor
from areal_plugins.builtin.executors.preloaded import AVAILABLE
from areal_plugins.builtin.executors.worker import LinkedWorker

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="workers are forked on Linux alone")

ERRANDS = Path(__file__).with_name("errands.py")
ROLE = load_file(ERRANDS).__name__
HEAVY = "sqlite3"
"""Stands for what takes long to import: nothing else here does."""
PATIENCE = 60.0

Test = Callable[[LocalExecutor, LinkedWorker], Awaitable[None]]


def spec(name: str = "w", role: str = "Errands", place: Place = Place(), **more: Any) -> WorkerSpec:  # noqa: B008
    return WorkerSpec(name, f"{ROLE}:{role}", place, **more)


def running(logs: Path, test: Test, modules: tuple[str, ...] = (HEAVY,), heartbeat: float = 60.0) -> None:
    """Run `test` with one forked worker."""

    async def run() -> None:
        executor = LocalExecutor(
            LocalOptions(), ExecutorContext("run", logs, (str(ERRANDS),), heartbeat, modules=modules)
        )
        try:
            await test(executor, await executor.start(spec()))
        finally:
            await executor.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def nursery(executor: LocalExecutor) -> int:
    assert executor._preloader.nursery is not None
    return executor._preloader.nursery._process.pid


def parent(pid: int | None) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def ended(pid: int) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)


def name(pid: int | None) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_worker_has_the_modules_from_its_start_and_everything_else_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "blue")

    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        about = await worker.call("about")
        assert HEAVY in about["modules"]
        assert about["pid"] == worker.pid == os.getsid(worker.pid) == os.getpgid(worker.pid)
        assert parent(worker.pid) == nursery(executor)
        assert about["environment"]["COLOUR"] == "blue"
        assert executor._reception._key.hex() not in str(about)
        assert name(worker.pid) == "w"
        assert HEAVY not in sys.modules

    running(tmp_path, test)


def test_threads_are_those_of_the_place(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, _: LinkedWorker) -> None:
        worker = await executor.start(spec("x", place=Place(threads=3)))
        assert parent(worker.pid) == nursery(executor)
        assert (await worker.call("about"))["environment"]["OMP_NUM_THREADS"] == "3"

    running(tmp_path, test)


@pytest.mark.parametrize(
    "asked",
    [
        spec("x", environment={"CUDA_VISIBLE_DEVICES": "0"}),
        spec("x", place=Place(device="npu", devices=(0,))),
        spec("x", python=sys.executable),
    ],
)
def test_a_worker_with_devices_variables_or_an_interpreter_of_its_own_is_started_afresh(
    tmp_path: Path, asked: WorkerSpec
) -> None:
    async def test(executor: LocalExecutor, _: LinkedWorker) -> None:
        worker = await executor.start(asked)
        assert parent(worker.pid) == os.getpid()
        assert HEAVY not in (await worker.call("about"))["modules"]

    running(tmp_path, test)


def test_modules_that_start_threads_are_not_forked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "busy.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    sys.path.append(str(tmp_path))

    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert parent(worker.pid) == os.getpid()
        assert executor._preloader.nursery is None

    try:
        with caplog.at_level(logging.WARNING):
            running(tmp_path, test, ("busy",))
    finally:
        sys.path.remove(str(tmp_path))
    assert "workers are not forked: what it imported runs 1 threads" in caplog.text


def test_a_module_that_cannot_be_imported_is_the_workers_own_business(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert parent(worker.pid) == nursery(executor)

    running(tmp_path, test, ("no_such_module", HEAVY))
    assert "no_such_module cannot be imported beforehand" in (tmp_path / "preload.log").read_text()


@pytest.mark.parametrize(("number", "reason"), [(signal.SIGKILL, "killed by SIGKILL"), (signal.SIGTERM, "exit code 0")])
def test_how_a_worker_ended_is_known_and_what_it_started_ends_with_it(
    tmp_path: Path, number: signal.Signals, reason: str
) -> None:
    async def test(_: LocalExecutor, worker: LinkedWorker) -> None:
        child = await worker.call("spawn")
        assert worker.pid is not None
        os.kill(worker.pid, number)
        assert await worker.lost() == reason
        await worker.stop(1)
        assert ended(child)

    running(tmp_path, test)


def test_a_worker_that_dies_at_the_start_says_why(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, _: LinkedWorker) -> None:
        with pytest.raises(WorkerLost, match=r"exit code 2, before it could serve; its log ends:(.|\n)*is not JSON"):
            await executor.start(spec("x", "Broken"))

    running(tmp_path, test)


def test_a_stopped_worker_is_noticed_and_killed(tmp_path: Path) -> None:
    async def test(_: LocalExecutor, worker: LinkedWorker) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGSTOP)
        assert "no heartbeat for 1 s" in await worker.lost()
        await worker.stop(0)
        assert ended(worker.pid)

    running(tmp_path, test, heartbeat=1.0)


def test_workers_outlive_the_process_they_were_forked_from_and_the_next_ones_come_from_another(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        first = nursery(executor)
        os.kill(first, signal.SIGKILL)
        assert ended(first)
        await worker.call("about")
        again = await executor.start(spec("x"))
        assert parent(again.pid) == nursery(executor) != first
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        assert "only the process that it was forked from knows" in await worker.lost()

    running(tmp_path, test)


def test_where_no_fork_comes_a_worker_is_started_afresh_and_the_next_is_forked_from_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("areal_plugins.builtin.executors.preloaded.FORK_SECONDS", 0.5)

    async def test(executor: LocalExecutor, _: LinkedWorker) -> None:
        os.kill(nursery(executor), signal.SIGSTOP)
        fresh = await executor.start(spec("x"))
        assert parent(fresh.pid) == os.getpid()
        forked = await executor.start(spec("y"))
        assert parent(forked.pid) == nursery(executor)

    running(tmp_path, test)


def test_a_worker_ends_though_the_process_it_was_forked_from_is_stopped(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        os.kill(nursery(executor), signal.SIGSTOP)
        try:
            await asyncio.wait_for(worker.stop(1), PATIENCE / 2)
        finally:
            os.kill(nursery(executor), signal.SIGCONT)

    running(tmp_path, test)


def test_closing_leaves_no_process_no_descriptor_and_no_file_but_logs(tmp_path: Path) -> None:
    left: list[int] = []

    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert executor._reaper._popen is not None
        left.extend((nursery(executor), executor._reaper._popen.pid, worker.pid or 0))

    before = open_files()
    running(tmp_path, test)
    assert all(map(ended, left))
    assert open_files() <= before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["preload.log", "w.log"]


def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, _: LinkedWorker) -> None:
        start = asyncio.create_task(executor.start(spec("x")))
        while not executor._launches:  # noqa: ASYNC110 - nothing tells when the fork is asked for
            await asyncio.sleep(0)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await executor.close()
        assert not executor._processes  # those that have ended are forgotten

    running(tmp_path, test)


CONTROLLER = """
import asyncio, os, signal, sys
from pathlib import Path
from areal_core.local import load_file
from areal_core.contexts import ExecutorContext, Place, WorkerSpec
from areal_plugins.builtin.executors import LocalOptions
from areal_plugins.builtin.executors.local import LocalExecutor

async def main(errands, logs, modules, *more):
    role = load_file(Path(errands)).__name__ + ":Errands"
    modules = tuple(filter(None, modules.split(",")))
    executor = LocalExecutor(LocalOptions(), ExecutorContext("run", Path(logs), (errands,), modules=modules))
    workers = [await executor.start(WorkerSpec(name, role, Place())) for name in ("calm", "hanging", "stopped", *more)]
    await workers[0].call("touch_at_close", logs + "/closed")
    child = await workers[0].call("spawn")
    hang = asyncio.gather(workers[1].call("hang"), *(worker.call("grab") for worker in workers[3:]))
    await asyncio.sleep(0)
    os.kill(workers[2].pid, signal.SIGSTOP)
    nursery = [executor._preloader.nursery._process.pid] if modules else []
    print(executor._folder.path, child, *nursery, *(worker.pid for worker in workers), flush=True)
    await hang

asyncio.run(main(*sys.argv[1:]))
"""


def orphans(logs: Path, modules: str, *more: str) -> tuple[Path, list[int]]:
    """The folder and the processes of a controller that was killed."""
    command = [sys.executable, "-c", CONTROLLER, str(ERRANDS), str(logs), modules, *more]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert controller.stdout is not None
    with controller:
        folder, *processes = controller.stdout.readline().split()
        controller.kill()
    return Path(folder), list(map(int, processes))


BOTH = pytest.mark.parametrize("modules", ["", HEAVY], ids=["fresh", "forked"])


@BOTH
def test_when_the_controller_is_killed_all_of_it_ends_even_what_is_stopped(tmp_path: Path, modules: str) -> None:
    folder, processes = orphans(tmp_path, modules)
    assert all(map(ended, processes))
    assert (tmp_path / "closed").exists()
    assert not folder.exists()


@BOTH
def test_when_the_controller_is_killed_so_is_who_holds_the_interpreters_lock(tmp_path: Path, modules: str) -> None:
    _, processes = orphans(tmp_path, modules, "greedy")
    assert all(map(ended, processes))


STARTING = """
import asyncio, sys
from pathlib import Path
from areal_core.contexts import ExecutorContext, Place, WorkerSpec
from areal_plugins.builtin.executors import LocalOptions
from areal_plugins.builtin.executors.local import LocalExecutor

async def main(logs):
    executor = LocalExecutor(LocalOptions(), ExecutorContext("run", Path(logs), modules=("endless",)))
    await asyncio.wait_for(executor.start(WorkerSpec("w", "mine:Mine", Place())), 60)

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_controller_that_is_killed_while_the_modules_are_imported_leaves_no_process_and_no_socket(
    tmp_path: Path,
) -> None:
    (tmp_path / "endless.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environment.get("PYTHONPATH", "")))
    log = tmp_path / "preload.log"
    with subprocess.Popen([sys.executable, "-c", STARTING, str(tmp_path)], env=environment) as controller:
        children: list[int] = []
        while len(children) < 2 or not log.read_text():  # one that imports, and one that looks after it
            assert controller.poll() is None
            children = [process.pid for process in psutil.Process(controller.pid).children()]
        controller.kill()
    assert all(map(ended, children))
    assert not list(temporary.iterdir())


def test_sockets_of_a_run_that_was_killed_all_at_once_go_when_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = [sys.executable, "-c", CONTROLLER, str(ERRANDS), str(tmp_path), HEAVY]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert controller.stdout is not None
    with controller:
        folder = controller.stdout.readline().split()[0]
        for process in (*psutil.Process(controller.pid).children(recursive=True), controller):
            process.kill()
    assert Path(folder).parent == tmp_path
    assert Path(folder).exists()

    async def test(executor: LocalExecutor, _: LinkedWorker) -> None:
        assert not left_over(folder)

    running(tmp_path, test)


def left_over(folder: str) -> bool:
    return Path(folder).exists()
