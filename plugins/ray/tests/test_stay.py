"""What is said and done while Ray takes its time; Ray is played by an object with scripted answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from areal_plugin_ray import RayOptions
from areal_plugin_ray import stay as stays
from areal_plugin_ray.records import Group, Home, Machine, Membership
from areal_plugin_ray.stay import Stay

from areal_plugins import InputError
from areal_plugins.protocols import ExecutorContext, Place, WorkerSpec
from areal_plugins.workers import WorkerLost

WORKERS = tuple(WorkerSpec(name, role, Place(), resources={"cpu": 1}) for name, role in
                (("trainer", "trainer"), ("engine-0", "engine"), ("rollout-0", "rollout")))  # fmt: skip


class Ray:
    """Two machines of four cores; `groups` and `homes` are answers in order, the last one for ever."""

    def __init__(self, **scripted: list[Any]) -> None:
        self.answers: dict[str, list[Any]] = {
            "connect": [Membership("10.0.0.1")],
            "machines": [[Machine("a", "10.0.0.1", {"CPU": 4}), Machine("b", "10.0.0.2", {"CPU": 4})]],
            "free": [{"CPU": 2}],
            "reserve": [0, 1, 2],
            "remove": [None],
            "group": [Group("CREATED", "FINISHED", ["a", "b", "a"])],
            "keep": [Home(7, "a", "10.0.0.1")],
            **scripted,
        }
        self.asked: list[tuple[Any, ...]] = []

    async def call(self, method: str, *args: Any) -> Any:
        self.asked.append((method, *args))
        answers = self.answers[method]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def count(self, method: str) -> int:
        return sum(call[0] == method for call in self.asked)


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    for name, seconds in (("POLL", 0.0), ("VERDICT", 0.05), ("SPEAK_AFTER", 0.0)):
        monkeypatch.setattr(stays, name, seconds)


def during(ray: Ray, test: Callable[[Stay, list[str]], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        said: list[str] = []
        context = ExecutorContext("run", Path("/shared/run/logs"), workers=WORKERS, report=said.append)
        stay = Stay(RayOptions(**options), context, ray)
        try:
            await stay.enter()
            return await test(stay, said)
        finally:
            await stay.leave()

    return asyncio.run(asyncio.wait_for(run(), 20))


def test_all_workers_of_a_run_share_one_placement_group():
    ray = Ray()

    async def test(stay, said):
        return await asyncio.gather(*map(stay.home, WORKERS))

    during(ray, test, strategy="SPREAD")
    assert [call for call in ray.asked if call[0] == "reserve"] == [("reserve", [{"CPU": 1}] * 3, "SPREAD")]
    assert sorted(call[2] for call in ray.asked if call[0] == "keep") == [0, 1, 2]


def test_a_worker_that_joins_later_gets_a_group_of_its_own():
    ray = Ray()
    joins = WorkerSpec("engine-1", "engine", Place(), resources={"cpu": 2})

    async def test(stay, said):
        await stay.home(WORKERS[0])
        return await stay.home(joins)

    during(ray, test)
    assert [call[1] for call in ray.asked if call[0] == "reserve"] == [[{"CPU": 1}] * 3, [{"CPU": 2}]]


def test_a_worker_that_leaves_gives_a_group_of_its_own_back():
    ray = Ray()
    joins = WorkerSpec("engine-1", "engine", Place(), resources={"cpu": 2})

    async def test(stay, said):
        for worker in (WORKERS[0], joins):
            await stay.home(worker)
            await stay.vacate(worker.name)
        await stay.home(joins)

    during(ray, test)
    assert [call for call in ray.asked if call[0] in ("reserve", "remove")] == [
        ("reserve", [{"CPU": 1}] * 3, "PACK"),
        ("reserve", [{"CPU": 2}], "PACK"),
        ("remove", 1),
        ("reserve", [{"CPU": 2}], "PACK"),
    ]


def test_a_worker_that_comes_back_takes_its_old_place():
    ray = Ray()

    async def test(stay, said):
        return [await stay.home(WORKERS[1]) for _ in range(2)]

    during(ray, test)
    assert [call[1:3] for call in ray.asked if call[0] == "keep"] == [(0, 1), (0, 1)]


def test_what_can_never_be_placed_fails_at_once_with_the_machines():
    small = [Machine("a", "10.0.0.1", {"CPU": 1}), Machine("b", "10.0.0.2", {"CPU": 1})]
    ray = Ray(machines=[small])
    with pytest.raises(InputError, match=r"3 CPU are needed, and the cluster has 2(?s:.*)10\.0\.0\.2    1"):
        during(ray, lambda stay, said: stay.home(WORKERS[0]))
    assert ray.count("reserve") == 0


def test_pieces_that_find_no_place_are_given_up_after_a_short_while():
    big = tuple(WorkerSpec(f"engine-{i}", "engine", Place(), resources={"cpu": n}) for i, n in enumerate((3, 3, 2)))
    ray = Ray(group=[Group("PENDING", "NO_RESOURCES", ["", "", ""])])

    async def run():
        stay = Stay(RayOptions(), ExecutorContext("run", Path("/logs"), workers=big), ray)
        await stay.enter()
        await stay.home(big[0])

    with pytest.raises(InputError, match="no way was found to lay the workers out"):
        asyncio.run(asyncio.wait_for(run(), 20))


def test_waiting_for_a_busy_cluster_is_told():
    waits = Group("PENDING", "NO_RESOURCES", ["", "", ""])
    ray = Ray(group=[waits, waits, Group("CREATED", "FINISHED", ["a", "b", "a"])])

    async def test(stay, said):
        await stay.home(WORKERS[0])
        return said

    assert "3 workers: waiting for room for 3 CPU in the cluster; free are 2 CPU" in during(ray, test)[0]


def test_waiting_ends_at_the_time_out():
    ray = Ray(group=[Group("PENDING", "NO_RESOURCES", ["", "", ""])])
    with pytest.raises(InputError, match=r"no room for 3 CPU within 0\.05 s"):
        during(ray, lambda stay, said: stay.home(WORKERS[0]), place_timeout=0.05)
    assert ("remove", 0) in ray.asked


def test_a_machine_that_is_lost_meanwhile_is_tried_no_more():
    ray = Ray(keep=[Home(problem="the actor's node has died"), Home(9, "b", "10.0.0.2")])

    async def test(stay, said):
        return await stay.home(WORKERS[0]), said

    home, said = during(ray, test)
    assert home.keeper == 9
    assert "trainer found no machine yet: the actor's node has died" in said


def test_a_place_that_does_not_come_back_is_a_lost_worker():
    ray = Ray(keep=[Home(problem="the actor's node has died")])
    with pytest.raises(WorkerLost, match=r"found no machine within 0\.2 s: it needs 1 CPU"):
        during(ray, lambda stay, said: stay.home(WORKERS[0]), place_timeout=0.2)


def test_a_machine_that_does_not_see_the_run_directory_is_named():
    ray = Ray(keep=[Home(node="b", address="10.0.0.2")])
    with pytest.raises(InputError, match=r"/shared/run: is not seen from 10\.0\.0\.2(?s:.*)--run-dir"):
        during(ray, lambda stay, said: stay.home(WORKERS[0]))


def test_no_cluster_is_an_error_with_the_way_out():
    ray = Ray(connect=[Membership(problem="Could not find any running Ray instance.")])
    with pytest.raises(InputError, match=r"Could not find(?s:.*)ray start --head"):
        during(ray, lambda stay, said: stay.home(WORKERS[0]))


def test_a_client_of_ray_is_refused():
    with pytest.raises(InputError, match="ray job submit"):
        during(Ray(), lambda stay, said: stay.home(WORKERS[0]), address="ray://head:10001")
