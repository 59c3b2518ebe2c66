import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import count
from typing import Any

import pytest

from areal_core.contexts import Place, WorkerSpec
from areal_core.errors import Remote, RemoteError, WorkerLost
from areal_core.workers import group
from areal_core.workers.group import WorkerGroup


class Rank:
    """A worker that answers as the test says: a value, an error, or never."""

    def __init__(self, spec: WorkerSpec, answer: Any) -> None:
        self.spec, self.name, self.address, self.pid = spec, spec.name, f"at:{spec.name}", 100 + spec.place.rank
        self._answer = answer
        self._gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        if self._answer is ...:
            raise WorkerLost(self.name, await asyncio.shield(self._gone))
        if isinstance(self._answer, Exception):
            raise self._answer
        return (self._answer, method, *args)

    async def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        yield (self.name, method)

    async def lost(self) -> str:
        return await asyncio.shield(self._gone)

    async def stop(self, grace: float) -> None:
        self.end("stopped")

    async def close(self) -> None: ...

    def kill(self) -> None:
        self.end("killed")

    def end(self, reason: str) -> None:
        if not self._gone.done():
            self._gone.set_result(reason)

    @property
    def ended(self) -> str | None:
        return self._gone.result() if self._gone.done() else None


class Ranks:
    """An executor of such workers; an error in `answers` at the start means that the rank does not come up."""

    def __init__(self, *answers: Any, broken: int | None = None) -> None:
        self.answers, self.broken, self.started = answers, broken, list[Rank]()

    async def start(self, spec: WorkerSpec) -> Rank:
        if spec.place.rank == self.broken:
            raise WorkerLost(spec.name, "exit code 1")
        self.started.append(Rank(spec, self.answers[spec.place.rank]))
        return self.started[-1]

    async def close(self) -> None: ...


def specs(size: int) -> Callable[[], Sequence[WorkerSpec]]:
    lives = count()

    def of_life() -> Sequence[WorkerSpec]:
        life = next(lives)
        return [
            WorkerSpec(f"t-{rank}", "trainer", Place(rank, size, rendezvous=f"life-{life}")) for rank in range(size)
        ]

    return of_life


async def started(*answers: Any) -> WorkerGroup:
    trainers = WorkerGroup("trainer", Ranks(*answers), specs(len(answers)))
    await trainers.start()
    return trainers


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_every_rank_is_called_and_rank_0_answers() -> None:
    async def test() -> None:
        trainers = await started("a", "b")
        assert await trainers.call("train", 1) == ("a", "train", 1)
        assert await trainers.call_all("train", 1) == [("a", "train", 1), ("b", "train", 1)]

    run(test)


def test_an_error_of_one_rank_is_the_groups_and_spares_it_when_all_return() -> None:
    error = RemoteError("t-1", "train", Remote("ValueError", "bad batch"))

    async def test() -> None:
        trainers = await started("a", error)
        with pytest.raises(RemoteError, match="bad batch"):
            await trainers.call("train")
        assert [rank.ended for rank in trainers.ranks] == [None, None]  # type: ignore[attr-defined]

    run(test)


def test_ranks_that_wait_for_one_that_failed_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "SETTLE", 0)
    error = RemoteError("t-0", "train", Remote("ValueError", "bad batch"))

    async def test() -> None:
        trainers = await started(error, ...)
        with pytest.raises(RemoteError, match="bad batch"):
            await trainers.call("train")
        assert [rank.ended for rank in trainers.ranks] == ["killed", "killed"]  # type: ignore[attr-defined]

    run(test)


def test_a_rank_that_is_lost_in_a_call_takes_the_group_with_it() -> None:
    async def test() -> None:
        trainers = await started(..., "b", ...)
        call = asyncio.create_task(trainers.call("train"))
        await asyncio.sleep(0)
        trainers.ranks[2].end("killed by SIGKILL")  # type: ignore[attr-defined]
        with pytest.raises(WorkerLost, match="t-2: killed by SIGKILL"):
            await call
        assert all(rank.ended for rank in trainers.ranks)  # type: ignore[attr-defined]

    run(test)


def test_a_rank_that_fails_because_its_peer_is_gone_is_not_to_blame() -> None:
    error = RemoteError("t-0", "train", Remote("RuntimeError", "connection closed by peer"))

    async def test() -> None:
        trainers = await started(error, ...)
        call = asyncio.create_task(trainers.call("train"))
        await asyncio.sleep(0.01)
        trainers.ranks[1].end("killed by SIGKILL")  # type: ignore[attr-defined]
        with pytest.raises(WorkerLost, match="worker trainer: t-1: killed by SIGKILL"):
            await call
        assert (trainers.broken, trainers.fault) == (True, "t-1: killed by SIGKILL")

    run(test)


def test_the_reason_of_a_hung_rank_is_that_of_a_hung_group() -> None:
    async def test() -> None:
        trainers = await started("a", "b")
        trainers.ranks[1].end("hung: no heartbeat for 60 s")  # type: ignore[attr-defined]
        assert await trainers.lost() == "hung: t-1: no heartbeat for 60 s"

    run(test)


def test_a_group_is_lost_with_its_first_rank() -> None:
    async def test() -> None:
        trainers = await started("a", "b")
        lost = asyncio.create_task(trainers.lost())
        await asyncio.sleep(0)
        trainers.ranks[1].end("killed by SIGSEGV")  # type: ignore[attr-defined]
        assert await lost == "t-1: killed by SIGSEGV"
        assert [rank.ended for rank in trainers.ranks] == ["killed", "killed by SIGSEGV"]  # type: ignore[attr-defined]

    run(test)


def test_a_group_starts_whole_or_not_at_all() -> None:
    async def test() -> None:
        executor = Ranks("a", "b", "c", broken=1)
        with pytest.raises(WorkerLost, match="t-1: exit code 1"):
            await WorkerGroup("trainer", executor, specs(3)).start()
        assert [rank.ended for rank in executor.started] == ["killed", "killed"]

    run(test)


def test_a_restart_is_a_new_life_with_a_rendezvous_of_its_own() -> None:
    async def test() -> None:
        trainers = await started("a", "b")
        first = trainers.ranks
        await trainers.restart(grace=1)
        assert [rank.ended for rank in first] == ["stopped", "stopped"]  # type: ignore[attr-defined]
        assert {rank.spec.place.rendezvous for rank in trainers.ranks} == {"life-1"}

    run(test)


def test_cancelling_a_call_leaves_the_group_alive() -> None:
    async def test() -> None:
        trainers = await started(..., ...)
        call = asyncio.create_task(trainers.call("train"))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert [rank.ended for rank in trainers.ranks] == [None, None]  # type: ignore[attr-defined]

    run(test)
