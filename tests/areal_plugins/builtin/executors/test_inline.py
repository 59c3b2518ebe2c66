import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

from areal_core.contexts import ExecutorContext, Place, WorkerSpec
from areal_core.errors import InputError, PluginError, RemoteError, WorkerLost
from areal_core.local import load_file
from areal_plugins.builtin.executors.inline import InlineExecutor, InlineWorker

ERRANDS = Path(__file__).with_name("errands.py")
ROLE = f"{load_file(ERRANDS).__name__}:Errands"

Test = Callable[[InlineExecutor, InlineWorker], Awaitable[None]]


def running(test: Test, role: str = ROLE) -> None:
    async def run() -> None:
        executor = InlineExecutor(ExecutorContext("run", Path("unused"), (str(ERRANDS),)))
        try:
            await test(executor, await executor.start(WorkerSpec("a", role, Place())))
        finally:
            await executor.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_nothing_is_copied() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        sent = np.zeros(3)
        seen = []
        worker._host.service.double = _keep(seen)  # type: ignore[attr-defined]
        await worker.call("double", sent)
        assert seen == [sent] or seen[0] is sent

    running(test)


def _keep(seen: list[np.ndarray]) -> Callable[[np.ndarray], Awaitable[None]]:
    async def double(array: np.ndarray) -> None:
        seen.append(array)

    return double


def test_a_service_knows_that_it_shares_the_loop() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        assert (await worker.call("about"))["threaded"] is False

    running(test)


def test_errors_arrive_as_from_a_process() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        with pytest.raises(RemoteError, match="a: crash: ZeroDivisionError: oh") as caught:
            await worker.call("crash")
        assert "in crash" in caught.value.error.traceback
        with pytest.raises(RemoteError) as refused:
            await worker.call("refuse")
        assert str(refused.value) == str(InputError("tasks.jsonl:3", "no answer"))

    running(test)


@pytest.mark.parametrize("method", ["no_such", "close", "_dial", "count"])
def test_only_what_a_service_offers_can_be_called(method: str) -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        with pytest.raises(RemoteError, match="there is no such method"):
            await worker.call(method)

    running(test)


def test_a_stream_that_is_left_early_is_closed() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        items = worker.stream("count", 10)
        assert await anext(items) == 0
        await items.aclose()
        await worker.call("happened", "closed")

    running(test)


def test_workers_reach_each_other() -> None:
    async def test(executor: InlineExecutor, worker: InlineWorker) -> None:
        other = await executor.start(WorkerSpec("b", ROLE, Place()))
        assert await other.call("ask", worker.address, 3) == [0, 1, 2]

    running(test)


def test_an_address_without_a_worker_is_lost() -> None:
    async def test(executor: InlineExecutor, _worker: InlineWorker) -> None:
        with pytest.raises(WorkerLost, match="inline:nobody: no worker has this address"):
            await executor.dial("inline:nobody")

    running(test)


def test_a_closed_link_does_not_close_the_worker() -> None:
    async def test(executor: InlineExecutor, worker: InlineWorker) -> None:
        link = await executor.dial(worker.address)
        await link.close()
        with pytest.raises(WorkerLost, match="closed the link"):
            await link.call("about")
        await worker.call("about")

    running(test)


def test_a_killed_worker_fails_what_runs_and_what_comes() -> None:
    async def test(executor: InlineExecutor, worker: InlineWorker) -> None:
        link = await executor.dial(worker.address)
        calls = [asyncio.create_task(w.call("forever")) for w in (worker, link)]
        await worker.call("happened", "began")
        worker.kill()
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, WorkerLost)
        with pytest.raises(WorkerLost, match="worker a: killed"):
            await link.call("about")
        with pytest.raises(WorkerLost, match="killed"):
            await anext(worker.stream("count", 1))
        assert await worker.lost() == "killed"

    running(test)


def test_a_kill_breaks_a_stream_under_way() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        items = worker.stream("count", 10)
        await anext(items)
        worker.kill()
        with pytest.raises(WorkerLost, match="killed"):
            await anext(items)

    running(test)


def test_a_restarted_worker_has_another_address() -> None:
    async def test(executor: InlineExecutor, worker: InlineWorker) -> None:
        worker.kill()
        again = await executor.start(worker.spec)
        assert again.address != worker.address
        await again.call("about")

    running(test)


def test_a_time_out_cancels_the_method() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        with pytest.raises(TimeoutError):
            await worker.call("forever", timeout=0.01)
        await worker.call("happened", "cancelled")

    running(test)


def test_a_cancelled_caller_stays_cancelled() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        call = asyncio.create_task(worker.call("forever"))
        await worker.call("happened", "began")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await worker.call("happened", "cancelled")

    running(test)


@pytest.mark.parametrize("killed", [True, False])
def test_closing_the_executor_closes_every_service(tmp_path: Path, killed: bool) -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        await worker.call("touch_at_close", str(tmp_path / "closed"))
        if killed:
            worker.kill()

    running(test)
    assert (tmp_path / "closed").exists()


def test_a_stopped_worker_says_so() -> None:
    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        await worker.stop(1)
        assert await worker.lost() == "stopped"

    running(test)


def test_an_unknown_role_is_refused_with_those_that_exist() -> None:
    async def test(_executor: InlineExecutor, _worker: InlineWorker) -> None: ...

    with pytest.raises(PluginError, match=r"painter: is no role of a worker .roles are engine, trainer, rollout"):
        running(test, "painter")


def test_a_call_whose_own_work_is_cancelled_is_an_error_and_no_end_of_the_caller() -> None:
    async def give_up(_array: np.ndarray) -> None:
        work = asyncio.ensure_future(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(work.cancel)
        await work

    async def test(_executor: InlineExecutor, worker: InlineWorker) -> None:
        worker._host.service.double = give_up  # type: ignore[attr-defined]
        with pytest.raises(RemoteError, match="CancelledError"):
            await worker.call("double", np.zeros(3))

    running(test)
