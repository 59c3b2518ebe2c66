"""Workers as real processes."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from attrs import frozen

from areal_core.contexts import ExecutorContext, Place, WorkerSpec
from areal_core.errors import InputError, RemoteError, WorkerLost
from areal_core.local import load_file
from areal_core.workers import hello
from areal_core.workers.address import connect
from areal_core.workers.dial import dial
from areal_core.workers.hello import Card
from areal_plugins.builtin.executors import LocalOptions, cores
from areal_plugins.builtin.executors.local import LocalExecutor
from areal_plugins.builtin.executors.worker import LinkedWorker

ERRANDS = Path(__file__).with_name("errands.py")
MODULE = load_file(ERRANDS).__name__
PATIENCE = 60.0


def spec(name: str, role: str = "Errands", **more: Any) -> WorkerSpec:
    return WorkerSpec(name, f"{MODULE}:{role}", Place(threads=1), **more)


@frozen
class Office:
    """Two workers that most tests share, on a loop of their own."""

    loop: asyncio.Runner
    executor: LocalExecutor
    a: LinkedWorker
    b: LinkedWorker

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        self.loop.run(asyncio.wait_for(test(), PATIENCE))


def make(logs: Path, heartbeat: float = 60.0, **options: Any) -> LocalExecutor:
    return LocalExecutor(LocalOptions(**options), ExecutorContext("run", logs, (str(ERRANDS),), heartbeat))


async def open_office(executor: LocalExecutor) -> tuple[LinkedWorker, LinkedWorker]:
    return await executor.start(spec("a", environment={"COLOUR": "blue"})), await executor.start(spec("b"))


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    executor = make(tmp_path_factory.mktemp("logs"))
    with asyncio.Runner() as loop:
        try:
            yield Office(loop, executor, *loop.run(open_office(executor)))
        finally:
            loop.run(executor.close())


def running(
    logs: Path, test: Callable[[LocalExecutor, LinkedWorker], Awaitable[None]], role: str = "Errands", **options: Any
) -> None:
    """Run `test` with one worker that it may break."""

    async def run() -> None:
        executor = make(logs, **options)
        try:
            await test(executor, await executor.start(spec("w", role)))
        finally:
            await executor.close()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def ended(pid: int) -> bool:
    """Wait for the end of a process that is not this one's child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE)[0])
    finally:
        os.close(handle)


# --- calls -----------------------------------------------------------------------------------------


def test_a_worker_is_another_process(office: Office) -> None:
    async def test() -> None:
        about = await office.a.call("about")
        assert about["pid"] == office.a.pid != os.getpid()
        assert about["threaded"] is True

    office.run(test)


def test_a_large_array_goes_there_and_back(office: Office) -> None:
    async def test() -> None:
        sent = np.arange(4_000_000, dtype=np.float32)
        np.testing.assert_array_equal(await office.a.call("double", sent), sent * 2)

    office.run(test)


def test_many_calls_run_at_once_on_both_workers(office: Office) -> None:
    async def test() -> None:
        workers = [office.a, office.b] * 50
        results = await asyncio.gather(*(w.call("double", np.full(2, n)) for n, w in enumerate(workers)))
        assert [int(result[0]) for result in results] == [2 * n for n in range(100)]

    office.run(test)


def test_streams_yield_in_order(office: Office) -> None:
    async def test() -> None:
        assert [item async for item in office.a.stream("count", 200)] == list(range(200))

    office.run(test)


def test_a_stream_that_is_left_is_closed_in_the_worker(office: Office) -> None:
    async def test() -> None:
        items = office.b.stream("count", 10**9)
        await anext(items)
        await items.aclose()
        await office.b.call("happened", "closed")

    office.run(test)


def test_a_cancelled_call_is_cancelled_in_the_worker(office: Office) -> None:
    async def test() -> None:
        call = asyncio.create_task(office.a.call("forever"))
        await office.a.call("happened", "began")
        call.cancel()
        await office.a.call("happened", "cancelled")

    office.run(test)


def test_errors_bring_their_traceback(office: Office) -> None:
    async def test() -> None:
        with pytest.raises(RemoteError, match="a: crash: ZeroDivisionError: oh") as caught:
            await office.a.call("crash")
        assert str(ERRANDS) in caught.value.error.traceback
        with pytest.raises(RemoteError) as refused:
            await office.a.call("refuse")
        assert str(refused.value) == str(InputError("tasks.jsonl:3", "no answer"))

    office.run(test)


def test_workers_reach_each_other_without_the_controller(office: Office) -> None:
    async def test() -> None:
        assert await office.a.call("ask", office.b.address, 3) == [0, 1, 2]
        assert await office.b.call("ask", office.a.address, 3) == [0, 1, 2]

    office.run(test)


def test_an_address_where_nobody_listens_is_a_lost_worker(office: Office) -> None:
    async def test() -> None:
        with pytest.raises(RemoteError, match="WorkerLost: worker unix:/nowhere: cannot be reached"):
            await office.a.call("ask", "unix:/nowhere", 3)

    office.run(test)


# --- how a worker starts ---------------------------------------------------------------------------


def test_threads_are_limited_before_anything_is_imported(office: Office) -> None:
    async def test() -> None:
        environment = (await office.a.call("about"))["environment"]
        assert environment["OMP_NUM_THREADS"] == environment["MKL_NUM_THREADS"] == "1"

    office.run(test)


@pytest.mark.skipif(len(cores.available()) < 2, reason="needs two cores to choose from")
@pytest.mark.parametrize("pin", [True, False])
def test_workers_that_compute_have_a_core_each_unless_the_spec_says_otherwise(tmp_path: Path, pin: bool) -> None:
    specs = (spec("a"), spec("b"))

    async def run() -> list[set[int]]:
        context = ExecutorContext("run", tmp_path, (str(ERRANDS),), workers=specs)
        executor = LocalExecutor(LocalOptions(pin=pin), context)
        try:
            started = [await executor.start(each) for each in specs]
            return [os.sched_getaffinity((await worker.call("about"))["pid"]) for worker in started]
        finally:
            await executor.close()

    a, b = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    everywhere = set(cores.available())
    assert (len(a), len(b), a & b) == (1, 1, set()) if pin else a == b == everywhere


@pytest.mark.parametrize(("given", "expected"), [(None, "0"), ("7", "7")])
def test_workers_order_sets_of_texts_alike_as_the_caller_says_or_by_default(
    given: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if given:
        monkeypatch.setenv("PYTHONHASHSEED", given)

    async def test(_: LocalExecutor, worker: LinkedWorker) -> None:
        assert (await worker.call("about"))["environment"]["PYTHONHASHSEED"] == expected

    running(tmp_path, test)


def test_the_specs_environment_reaches_its_worker_alone(office: Office) -> None:
    async def test() -> None:
        colours = [(await worker.call("about"))["environment"].get("COLOUR") for worker in (office.a, office.b)]
        assert colours == ["blue", None]

    office.run(test)


def test_the_key_is_neither_on_the_command_line_nor_left_in_the_environment(office: Office) -> None:
    async def test() -> None:
        about = await office.a.call("about")
        key = office.executor._reception._key.hex()
        assert key not in about["command"]
        assert key not in str(about["environment"])
        assert "--name\0a\0" in about["command"]

    office.run(test)


def test_a_worker_imports_nothing_heavy_by_itself(office: Office) -> None:
    async def test() -> None:
        assert not {"torch", "transformers", "pluggy", "ruamel.yaml"} & set((await office.a.call("about"))["modules"])

    office.run(test)


def test_what_a_worker_prints_is_in_its_log(office: Office) -> None:
    async def test() -> None:
        await office.b.call("say", "hello from b")

    office.run(test)
    assert "hello from b" in (office.executor._context.logs / "b.log").read_text()


def test_another_interpreter_is_used_when_asked_for_and_finds_modules_its_own_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", "/of/the/controller")
    monkeypatch.setenv("PYTHONHOME", "/of/the/controller")
    other = tmp_path / "bin" / "python"
    other.parent.mkdir()
    path = os.pathsep.join(sys.path)
    other.write_text(f'#!/bin/sh\nexport OTHER=yes$PYTHONPATH PYTHONPATH="{path}"\nexec "{sys.executable}" "$@"\n')
    other.chmod(0o755)

    async def test() -> None:
        executor = make(tmp_path)
        try:
            worker = await executor.start(spec("w", python=str(other)))
            environment = (await worker.call("about"))["environment"]
            assert environment["OTHER"] == "yes"
            assert environment["VIRTUAL_ENV"] == environment["PYTHONHOME"] == ""
        finally:
            await executor.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_an_interpreter_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    async def test() -> None:
        executor = make(tmp_path)
        try:
            with pytest.raises(InputError, match="/no/python: cannot be started: No such file"):
                await executor.start(spec("w", python="/no/python"))
        finally:
            await executor.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (
            spec("w", "Broken"),
            r"exit code 2, before it could serve; its log ends:(.|\n)*model/config\.json: is not JSON",
        ),
        (spec("w", python="/bin/false"), "exit code 1, before it could serve; its log is empty"),
    ],
)
def test_a_worker_that_dies_at_the_start_says_why(tmp_path: Path, asked: WorkerSpec, reason: str) -> None:
    async def test() -> None:
        executor = make(tmp_path)
        try:
            with pytest.raises(WorkerLost, match=reason):
                await executor.start(asked)
        finally:
            await executor.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_a_worker_that_never_answers_is_given_up_on(tmp_path: Path) -> None:
    silent = tmp_path / "python"
    silent.write_text("#!/bin/sh\nexec sleep 1000\n")
    silent.chmod(0o755)

    async def test() -> None:
        executor = make(tmp_path, start_timeout=0.05)
        try:
            with pytest.raises(WorkerLost, match=r"no answer within 0\.05 s, before it could serve"):
                await executor.start(spec("w", python=str(silent)))
            (process,) = executor._processes
        finally:
            await executor.close()
        assert ended(process.pid)

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_loopback_tcp_serves_where_unix_sockets_do_not(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert worker.address.startswith("tcp:127.0.0.1:")
        assert await worker.call("ask", worker.address, 3) == [0, 1, 2]

    running(tmp_path, test, link="tcp")


def test_loopback_tcp_serves_where_temporary_files_are_too_deep_for_unix_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("deep" * 25)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))

    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert worker.address.startswith("tcp:127.0.0.1:")

    running(tmp_path, test)


# --- strangers -------------------------------------------------------------------------------------


def test_a_stranger_with_another_key_is_refused_and_harms_nobody(office: Office) -> None:
    async def test() -> None:
        for address in (office.a.address, office.executor._reception._listener.address):
            with pytest.raises(WorkerLost, match="another key"):
                await dial(address, b"guess", Card("stranger"))
        await office.a.call("about")

    office.run(test)


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\xff" * 4096])
def test_garbage_ends_its_own_link_only(office: Office, garbage: bytes) -> None:
    async def test() -> None:
        wire = await connect(office.a.address)
        assert wire._transport is not None
        wire._transport.write(garbage)
        assert "closed the link" in await wire.lost
        await office.a.call("about")

    office.run(test)


def test_a_worker_nobody_expects_is_sent_away(office: Office) -> None:
    async def test() -> None:
        link = await dial(
            office.executor._reception._listener.address, office.executor._reception._key, Card("stranger", "engine")
        )
        assert "closed the link" in await link.lost()
        await link.close()

    office.run(test)


def test_a_worker_that_was_given_up_is_not_taken_for_the_next_of_its_name(tmp_path: Path) -> None:
    async def test() -> None:
        executor = make(tmp_path)
        reception, asked = executor._reception, spec("w")
        nobody = SimpleNamespace(exited=asyncio.get_running_loop().create_future())
        try:
            await reception.open("tcp:127.0.0.1:0")
            old, new = (reception.arguments(asked)[-2] for _ in range(2))
            arrival = asyncio.create_task(reception._arrival("w", nobody))  # type: ignore[arg-type]
            cards = [Card("w", "engine", address=start, start=start) for start in (old, new)]
            links = [await dial(reception._listener.address, reception._key, card) for card in cards]
            assert "closed the link" in await links[0].lost()
            wire, card = await arrival
            assert card.start == new
            wire.abort("the test is over")
            for link in links:
                await link.close()
        finally:
            await executor.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


def test_the_sockets_are_out_of_other_users_reach(office: Office) -> None:
    owned = office.executor._folder
    assert owned is not None
    folder = owned.path
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 3


# --- how a worker ends -----------------------------------------------------------------------------


def test_a_killed_process_fails_its_calls_and_streams_at_once(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        call = asyncio.create_task(worker.call("forever"))
        items = worker.stream("count", 10**9)
        await anext(items)
        await worker.call("happened", "began")
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerLost, match="worker w: killed by SIGKILL"):
            await call
        with pytest.raises(WorkerLost, match="killed by SIGKILL"):
            async for _ in items:
                pass
        assert await worker.lost() == "killed by SIGKILL"

    running(tmp_path, test)


def test_what_a_dead_worker_started_ends_with_it(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        child = await worker.call("spawn")
        worker.kill()
        assert await worker.lost() == "killed"
        await worker.stop(1)
        assert ended(child)

    running(tmp_path, test)


def test_a_worker_that_hangs_is_noticed_by_its_silence(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        with pytest.raises(WorkerLost, match="worker w: hung: no heartbeat for 2 s"):
            await worker.call("hang")

    running(tmp_path, test, heartbeat=2.0)


def test_a_stopped_worker_closes_its_service_first(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        await worker.call("touch_at_close", str(tmp_path / "closed"))
        await worker.stop(PATIENCE)
        assert (tmp_path / "closed").exists()
        assert await worker.lost() == "stopped"
        assert worker._body.exited.result() == "exit code 0"

    running(tmp_path, test)


def test_sigterm_ends_a_worker_cleanly(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        await worker.call("touch_at_close", str(tmp_path / "closed"))
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGTERM)
        assert await worker.lost() == "exit code 0"

    running(tmp_path, test)
    assert (tmp_path / "closed").exists()


def test_sigint_is_left_to_the_controller(tmp_path: Path) -> None:
    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGINT)
        await worker.call("about")

    running(tmp_path, test)


def test_a_worker_that_will_not_end_is_made_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("areal_plugins.builtin.executors.worker.TERMINATE_GRACE", 0.01)

    async def test(_executor: LocalExecutor, worker: LinkedWorker) -> None:
        await worker.stop(0.01)
        assert worker._body.exited.result() == "killed by SIGKILL"

    running(tmp_path, test, role="Stubborn")


def test_a_worker_can_be_started_again_under_its_name(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        worker.kill()
        again = await executor.start(worker.spec)
        assert (await again.call("about"))["pid"] == again.pid != worker.pid

    running(tmp_path, test)


def test_nothing_is_kept_of_a_worker_that_has_ended(tmp_path: Path) -> None:
    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        worker.kill()
        await worker._body.swept
        await asyncio.sleep(0)  # for the callbacks
        assert not executor._processes
        assert not executor._workers

    running(tmp_path, test)


def test_closing_leaves_no_process_and_no_socket(tmp_path: Path) -> None:
    left: list[Any] = []

    async def test(executor: LocalExecutor, worker: LinkedWorker) -> None:
        assert executor._folder is not None
        left.extend((executor._folder.path, worker.pid))

    running(tmp_path, test)
    folder, pid = left
    assert not folder.exists()
    assert ended(pid)
    assert [file.name for file in tmp_path.iterdir()] == ["w.log"]


def test_a_start_that_is_cancelled_leaves_no_process(tmp_path: Path) -> None:
    async def test() -> None:
        executor = make(tmp_path)
        start = asyncio.create_task(executor.start(spec("w")))
        while not executor._processes:  # noqa: ASYNC110 - nothing tells when the process is there
            await asyncio.sleep(0)
        (process,) = executor._processes
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        await executor.close()
        assert ended(process.pid)

    asyncio.run(asyncio.wait_for(test(), PATIENCE))


@pytest.mark.parametrize(("field", "there"), [("PROTOCOL", 99), ("_release", "9.9")])
def test_a_worker_of_another_version_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, there: object
) -> None:
    async def test() -> None:
        executor = make(tmp_path)
        try:
            with pytest.raises(WorkerLost, match=f"worker w: {field.strip('_').lower()} {there} at the other end"):
                await executor.start(spec("w"))
        finally:
            await executor.close()

    monkeypatch.setattr(hello, field, there if field == "PROTOCOL" else lambda: there)
    asyncio.run(asyncio.wait_for(test(), PATIENCE))
