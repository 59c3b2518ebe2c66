"""What an executor must keep."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest

from areal_core.contexts import ExecutorContext, Place, WorkerSpec
from areal_core.errors import RemoteError, WorkerLost
from areal_core.protocols import Executor, Worker
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.errands import ROLE, Broken
from areal_plugins.testing.conformance.leftovers import patiently

T = TypeVar("T")

Use = Callable[[Executor], Awaitable[T]]


class ExecutorConformance(Conformance):
    """Rules for what starts workers: each rule starts workers of a small service, and closes the executor.

    `patience`: seconds that any one rule may take. `grace`: seconds that a worker gets to stop.
    """

    kind: ClassVar[str] = "executor"
    patience: ClassVar[float] = 60.0
    grace: ClassVar[float] = 5.0

    @pytest.fixture
    def use(self, subject: Subject, tmp_path: Path) -> Callable[[Use[Any]], Any]:
        """Gives an executor to a coroutine function, and closes it afterwards."""

        async def used(what: Use[Any]) -> Any:
            executor: Executor = subject.build(ExecutorContext("conformance", tmp_path / "logs", subject.files))
            try:
                return await patiently(what(executor), self.patience)
            finally:
                await patiently(executor.close(), self.patience)

        return lambda what: asyncio.run(used(what))

    # --- calls -------------------------------------------------------------------------------------

    def test_a_call_gives_its_result(self, use: Callable[[Use[Any]], Any]) -> None:
        """What a method returns arrives, arrays bit by bit, in any number of calls at once."""
        arrays = [np.arange(size, dtype=kind) for size in (0, 7, 100_000) for kind in ("float32", "int64", "uint8")]

        async def call(executor: Executor) -> list[np.ndarray]:
            worker = await executor.start(_spec())
            return list(await asyncio.gather(*(worker.call("double", array) for array in arrays)))

        for array, found in zip(arrays, use(call), strict=True):
            assert found.dtype == array.dtype, f"{array.dtype} arrives as {found.dtype}"
            assert np.array_equal(found, array * 2), f"{array.size} numbers of {array.dtype} arrive changed"

    def test_a_stream_gives_its_items(self, use: Callable[[Use[Any]], Any]) -> None:
        """What a method yields arrives in order, and a stream that is left early does no harm."""

        async def stream(executor: Executor) -> tuple[list[int], list[int]]:
            worker = await executor.start(_spec())
            async with aclosing(worker.stream("count", 1000)) as numbers:  # type: ignore[type-var]
                async for number in numbers:
                    if number == 3:
                        break
            return [n async for n in worker.stream("count", 100)], [n async for n in worker.stream("count", 0)]

        found = use(stream)
        assert found == (list(range(100)), []), f"100 numbers and none arrive as {len(found[0])} and {len(found[1])}"

    def test_an_error_arrives_with_its_name_and_text(self, use: Callable[[Use[Any]], Any]) -> None:
        """What a service raises is a `RemoteError` that knows the error's class and text."""

        async def fail(executor: Executor) -> list[Any]:
            worker = await executor.start(_spec())
            return [await _raised(worker.call(method)) for method in ("refuse", "crash")]

        found = use(fail)
        for error, name, text in zip(found, ("InputError", "ZeroDivisionError"), ("answer", "by nothing"), strict=True):
            assert isinstance(error, RemoteError), f"it raises {error!r}"
            assert (error.error.type, text in error.error.text) == (name, True), f"{name} arrives as {error.error}"

    def test_a_call_ends_at_its_time_out(self, use: Callable[[Use[Any]], Any]) -> None:
        """A call with a time-out raises `TimeoutError`, and the worker answers on."""

        async def wait(executor: Executor) -> tuple[Any, bool]:
            worker = await executor.start(_spec())
            late = await _raised(worker.call("forever", timeout=0.2))
            return late, await worker.call("began")

        late, answers = use(wait)
        assert isinstance(late, TimeoutError), f"it raises {late!r}"
        assert answers, "the worker does not answer any more"

    def test_workers_reach_each_other(self, use: Callable[[Use[Any]], Any]) -> None:
        """A worker can dial another one's address, and addresses are not the same."""

        async def relay(executor: Executor) -> tuple[list[int], bool]:
            first, second = await asyncio.gather(executor.start(_spec("one")), executor.start(_spec("two")))
            return await first.call("relay", second.address, 5), first.address != second.address

        assert use(relay) == ([0, 1, 2, 3, 4], True), "what one worker asks of another does not arrive"

    def test_a_worker_is_what_was_asked_for(self, use: Callable[[Use[Any]], Any]) -> None:
        """The handle has the name and the spec that it was started with."""

        async def look(executor: Executor) -> tuple[str, WorkerSpec]:
            worker = await executor.start(_spec("somebody"))
            return worker.name, worker.spec

        name, spec = use(look)
        assert (name, spec) == ("somebody", _spec("somebody")), f"it is called {name} and is {spec}"

    # --- ends --------------------------------------------------------------------------------------

    def test_a_killed_worker_is_lost(self, use: Callable[[Use[Any]], Any]) -> None:
        """A kill fails calls under way with `WorkerLost`, later ones too, and `lost` gives the reason."""

        async def kill(executor: Executor) -> tuple[Any, Any, str]:
            worker = await executor.start(_spec())
            under_way = asyncio.ensure_future(_raised(worker.call("forever")))
            await worker.call("began")
            worker.kill()
            return await under_way, await _raised(worker.call("process")), await worker.lost()

        under_way, later, reason = use(kill)
        assert isinstance(under_way, WorkerLost), f"a call under way raises {under_way!r}"
        assert isinstance(later, WorkerLost), f"a later call raises {later!r}"
        assert isinstance(reason, str), f"the reason is {reason!r}"
        assert reason, "lost() gives no reason"

    def test_a_stopped_worker_is_gone(self, use: Callable[[Use[Any]], Any]) -> None:
        """`stop` returns once the worker has ended, and `lost` says so."""

        async def stop(executor: Executor) -> str:
            worker = await executor.start(_spec())
            await worker.stop(self.grace)
            return await worker.lost()

        assert use(stop), "lost() gives no reason"

    def test_other_workers_live_on(self, use: Callable[[Use[Any]], Any]) -> None:
        """The end of one worker is not that of others, and another can be started in its place."""

        async def outlive(executor: Executor) -> list[np.ndarray]:
            first, second = await executor.start(_spec("one")), await executor.start(_spec("two"))
            first.kill()
            await first.lost()
            again = await executor.start(_spec("one"))
            return [await worker.call("double", np.ones(1)) for worker in (second, again)]

        assert [array.tolist() for array in use(outlive)] == [[2.0], [2.0]], "they answer wrongly"

    def test_closing_ends_every_worker(self, subject: Subject, tmp_path: Path) -> None:
        """After `close` all workers are lost."""

        async def end() -> list[str]:
            executor: Executor = subject.build(ExecutorContext("conformance", tmp_path / "logs", subject.files))
            workers = [await executor.start(_spec(name)) for name in ("one", "two")]
            await patiently(executor.close(), self.patience)
            return [await _reason(worker, self.grace) for worker in workers]

        assert all(asyncio.run(end())), "a worker is not lost once the executor is closed"

    # --- processes ---------------------------------------------------------------------------------

    def test_workers_are_processes(self, subject: Subject, use: Callable[[Use[Any]], Any]) -> None:
        """Where workers are declared to be processes each is one of its own, by the name of `pid` where it has one."""
        _processes_only(subject)

        async def look(executor: Executor) -> list[tuple[int, int | None]]:
            workers = [await executor.start(_spec(name)) for name in ("one", "two")]
            return [(await worker.call("process"), worker.pid) for worker in workers]

        found = use(look)
        assert len({os.getpid(), *(pid for pid, _ in found)}) == 3, "workers share a process"
        assert all(told in (None, pid) for pid, told in found), f"processes and what `pid` says differ: {found}"

    def test_variables_reach_a_worker(self, subject: Subject, use: Callable[[Use[Any]], Any]) -> None:
        """A process starts with the variables of its spec."""
        _processes_only(subject)

        async def look(executor: Executor) -> str | None:
            worker = await executor.start(_spec(environment={"AREAL_CONFORMANCE": "here"}))
            found: str | None = await worker.call("variable", "AREAL_CONFORMANCE")
            return found

        assert use(look) == "here", "a variable of the spec is not in the worker's environment"

    def test_a_worker_that_dies_is_lost(self, subject: Subject, use: Callable[[Use[Any]], Any]) -> None:
        """A process that ends by itself fails its calls with `WorkerLost`."""
        _processes_only(subject)

        async def die(executor: Executor) -> tuple[Any, str]:
            worker = await executor.start(_spec())
            return await _raised(worker.call("die")), await worker.lost()

        error, reason = use(die)
        assert isinstance(error, WorkerLost), f"the call raises {error!r}"
        assert reason, "lost() gives no reason"

    def test_a_worker_that_cannot_start_says_why(self, subject: Subject, use: Callable[[Use[Any]], Any]) -> None:
        """A process whose service cannot be made is a `WorkerLost` with the cause."""
        _processes_only(subject)

        async def start(executor: Executor) -> Any:
            return await _raised(executor.start(_spec(role=f"{Broken.__module__}:{Broken.__name__}")))

        error = use(start)
        assert isinstance(error, WorkerLost), f"it raises {error!r}"
        assert "is not JSON" in str(error), f"the cause is not in {str(error)!r}"


def _spec(name: str = "worker", role: str = ROLE, environment: dict[str, str] | None = None) -> WorkerSpec:
    return WorkerSpec(name, role, Place(), environment or {})


def _processes_only(subject: Subject) -> None:
    if not subject.descriptor.capabilities.processes:
        pytest.skip("its workers are declared to share this process")


async def _raised(work: Awaitable[Any]) -> Any:
    """What it raises; None where it raises nothing."""
    try:
        await work
    except Exception as error:  # looked at by the rule
        return error
    return None


async def _reason(worker: Worker, patience: float) -> str:
    """Why it was lost; empty when it is not."""
    try:
        return await asyncio.wait_for(worker.lost(), patience)
    except TimeoutError:
        return ""
