"""A run's stay in a cluster: its broker, the room that is reserved for its workers, and who lives where."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from areal_plugin_ray import RayOptions
from areal_plugin_ray.records import Group, Home, Machine, Membership
from areal_plugin_ray.room import Bundle, amounts, bundle, fits, lacking, table, total
from areal_plugins import InputError
from areal_plugins.protocols import ExecutorContext, Worker, WorkerSpec
from areal_plugins.workers import WorkerLost

POLL = 0.25
"""Seconds between looks at a placement group."""
VERDICT = 8.0
"""Seconds that Ray gets to find a way where none was found here."""
SPEAK_AFTER = 5.0
"""Seconds of waiting before somebody is told."""


@frozen(eq=False)
class Room:
    """A worker's bundle in a placement group, whose number is known once it has its machines."""

    group: asyncio.Task[int]
    index: int


class Stay:
    """What is asked of Ray, and what is said while it takes its time."""

    def __init__(self, options: RayOptions, context: ExecutorContext, broker: Worker) -> None:
        self._options, self._context, self.broker = options, context, broker
        self._rooms: dict[str, Room] = {}
        self.address = ""

    async def enter(self) -> None:
        """Become a member of the cluster, and ask for room for all workers that are known.

        Raises:
            InputError: there is no such cluster.

        """
        if "://" in self._options.address:
            way_out = "start the run on a machine of the cluster, or with `ray job submit`"
            raise InputError("executor.ray.address", "workers and controller must reach each other", way_out)
        membership: Membership = await self.broker.call("connect", self._options.address)
        if membership.problem:
            way_out = "start one with `ray start --head`, or give executor.ray.address"
            raise InputError("executor ray", membership.problem, way_out)
        self.address = membership.address
        self._reserve({worker.name: bundle(worker, self._options) for worker in self._context.workers})

    async def home(self, spec: WorkerSpec) -> Home:
        """A keeper for the worker, on a machine that is alive.

        Raises:
            InputError: the cluster can never hold the workers, or its machines do not see the run's directory.
            WorkerLost: there was no room for it within `place_timeout`.

        """
        needs = bundle(spec, self._options)
        if spec.name not in self._rooms:
            self._reserve({spec.name: needs})
        room = self._rooms[spec.name]
        await asyncio.wait({room.group})
        group = room.group.result()
        try:
            async with asyncio.timeout(self._options.place_timeout):
                return await self._settle(spec.name, needs, group, room.index)
        except TimeoutError:
            waited = f"found no machine within {self._options.place_timeout:g} s"
            raise WorkerLost(spec.name, f"{waited}: it needs {amounts(needs)}; {await self._state()}") from None

    async def vacate(self, name: str) -> None:
        """Give back the room of a worker that does not return, where it had a placement group for itself."""
        room = self._rooms[name]
        if sum(other.group is room.group for other in self._rooms.values()) == 1:
            del self._rooms[name]
            await self.broker.call("remove", room.group.result())

    async def leave(self) -> None:
        """Wait for nothing any more."""
        groups = {room.group for room in self._rooms.values()}
        for group in groups:
            group.cancel()
        await asyncio.gather(*groups, return_exceptions=True)

    def _reserve(self, workers: Mapping[str, Bundle]) -> None:
        group = asyncio.create_task(self._make_room(workers))
        self._rooms.update({name: Room(group, index) for index, name in enumerate(workers)})

    async def _make_room(self, workers: Mapping[str, Bundle]) -> int:
        """The number of a placement group that has its machines."""
        machines, strategy = await self._machines(), self._options.strategy
        if reasons := lacking(workers, strategy, machines):
            raise _infeasible("; ".join(reasons), machines)
        group: int = await self.broker.call("reserve", list(workers.values()), strategy)
        sure = fits(workers.values(), machines)
        patience = self._options.place_timeout if sure else min(VERDICT, self._options.place_timeout)
        try:
            async with asyncio.timeout(patience):
                await self._created(group, f"{len(workers)} workers", total(workers.values()))
        except TimeoutError:
            await self.broker.call("remove", group)
            if not sure:
                raise _infeasible("no way was found to lay the workers out on the machines", machines) from None
            needed = amounts(total(workers.values()))
            problem = f"no room for {needed} within {patience:g} s; {await self._state()}"
            raise InputError("executor ray", problem, "wait, or raise executor.ray.place_timeout") from None
        return group

    async def _settle(self, name: str, needs: Bundle, group: int, index: int) -> Home:
        """Try until a keeper answers: Ray may take a while to see that a bundle's machine is lost, and to move it."""
        folder = self._context.logs.parent
        while True:
            await self._created(group, name, needs)
            home: Home = await self.broker.call("keep", group, index, str(folder))
            if home.keeper >= 0:
                return home
            if not home.problem:
                raise _unseen(folder, home.address)
            self._context.report(f"{name} found no machine yet: {home.problem}")
            await asyncio.sleep(POLL)

    async def _created(self, number: int, who: str, needs: Bundle) -> None:
        """Return once every bundle of the group has a machine; say what is waited for."""
        loop = asyncio.get_running_loop()
        speak = loop.time() + SPEAK_AFTER
        while True:
            group: Group = await self.broker.call("group", number)
            if group.state == "CREATED":
                return
            if loop.time() > speak:
                wanted = f"waiting for room for {amounts(needs)} in the cluster"
                self._context.report(f"{who}: {wanted}; {await self._state()}")
                speak += 12 * SPEAK_AFTER
            await asyncio.sleep(POLL)

    async def _machines(self) -> list[Machine]:
        machines: list[Machine] = await self.broker.call("machines")
        return machines

    async def _state(self) -> str:
        free: dict[str, float] = await self.broker.call("free")
        return f"free are {amounts(free)} of what the cluster has:\n{table(await self._machines())}"


def _infeasible(reason: str, machines: list[Machine]) -> InputError:
    return InputError(
        "executor ray",
        f"the cluster cannot hold this run: {reason}; it has:\n{table(machines)}",
        "ask for less in resources, or start machines that have it: `ray start --address ... --resources ...`",
    )


def _unseen(folder: Path, address: str) -> InputError:
    way_out = "give a directory on a file system that all machines share by --run-dir"
    return InputError(str(folder), f"is not seen from {address}, where a worker shall write to it", way_out)
