"""Workers on the machines of a Ray cluster: Ray places them and sees machines fail, the wire is the same as ever."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress

from attrs import evolve

from areal_plugin_ray import RayOptions
from areal_plugin_ray.body import RayBody
from areal_plugin_ray.records import Home, Order
from areal_plugin_ray.stay import Stay
from areal_plugins.protocols import ExecutorContext, Place, WorkerSpec
from areal_plugins.workers import LinkedWorker, Process, Reception, RemoteError, WorkerLost, spawn

BROKER_TIMEOUT = 120.0
"""Seconds for importing Ray and connecting."""

Meeting = asyncio.Future[str | None]
"""Resolves to the rendezvous of a group; None: its rank 0 did not start."""


def make(options: RayOptions, context: ExecutorContext) -> RayExecutor:
    """The factory of `ray`."""
    return RayExecutor(options, context)


class RayExecutor:
    """Asks a broker, a process beside this one, for keepers; each starts its worker, which dials back.

    Weights and completions pass neither this process nor Ray: workers dial each other.
    """

    def __init__(self, options: RayOptions, context: ExecutorContext) -> None:
        self._options, self._context = options, context
        self._desk, self._reception = Reception(context), Reception(context)
        self._stay: asyncio.Task[Stay] | None = None
        self._processes: list[Process] = []
        self._bodies: set[RayBody] = set()
        self._workers: set[LinkedWorker] = set()
        self._farewells: set[asyncio.Task[None]] = set()
        self._meetings: dict[str, Meeting] = {}

    async def start(self, spec: WorkerSpec) -> LinkedWorker:
        """Find a machine, start a process there and wait until its service answers.

        Raises:
            WorkerLost: it ended first, took too long, or found no machine; with the end of its log.
            InputError: there is no such cluster, it can never hold the run, or a machine does not see its files.

        """
        meeting = self._meeting(spec)
        try:
            stay = await self._enter()
            home = await stay.home(spec)
            body = await self._move_in(spec, home, stay, meeting)
        except RemoteError as error:
            raise WorkerLost(spec.name, f"Ray: {error.error.text}") from error
        finally:
            if spec.place.rank == 0 and not meeting.done():  # nobody shall wait for it
                meeting.set_result(None)
        worker = await self._receive(body)
        self._workers.add(worker)
        body.swept.add_done_callback(lambda _: self._workers.discard(worker))
        farewell = asyncio.create_task(self._farewell(worker, body, stay))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)
        return worker

    async def close(self) -> None:
        """End every worker; leave no process, actor or placement group."""
        await asyncio.gather(*(worker.stop(self._options.grace) for worker in self._workers))
        await asyncio.gather(*(body.close() for body in self._bodies))
        await asyncio.gather(*self._farewells)
        if self._stay is not None:
            await self._leave(self._stay)
        for process in self._processes:
            process.kill()
        await asyncio.gather(*(process.swept for process in self._processes))
        await self._desk.close()
        await self._reception.close()

    async def _farewell(self, worker: LinkedWorker, body: RayBody, stay: Stay) -> None:
        """Give the worker's room back once it is stopped; who is lost otherwise comes back to it."""
        if await worker.lost() == "stopped":
            await asyncio.shield(body.swept)
            with suppress(RemoteError, WorkerLost):  # then all room is given back with the broker
                await stay.vacate(worker.name)

    async def _enter(self) -> Stay:
        """The stay in the cluster; a new one where the last one's broker is lost."""
        if self._stay is None or (self._stay.done() and self._processes[-1].exited.done()):
            self._stay = asyncio.create_task(self._begin())
        stay = self._stay
        await asyncio.wait({stay})
        return stay.result()

    async def _begin(self) -> Stay:
        stay = Stay(self._options, self._context, await self._broker())
        await stay.enter()
        await self._reception.open(f"tcp:{stay.address}:0")
        return stay

    async def _leave(self, stay: asyncio.Task[Stay]) -> None:
        stay.cancel()
        (begun,) = await asyncio.gather(stay, return_exceptions=True)
        if isinstance(begun, Stay):
            await begun.leave()
            await begun.broker.stop(self._options.grace)

    async def _broker(self) -> LinkedWorker:
        spec = WorkerSpec("ray", "areal_plugin_ray.broker:Broker", Place())
        await self._desk.open("tcp:127.0.0.1:0")
        self._context.logs.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, *self._desk.arguments(spec)]
        process = spawn(command, self._desk.variables(spec, os.environ), self._context.logs / "ray.log")
        self._processes.append(process)
        try:
            async with asyncio.timeout(BROKER_TIMEOUT):
                return await self._desk.receive(spec, process)
        except (WorkerLost, TimeoutError) as error:
            process.kill()
            raise WorkerLost("ray", f"{error or 'no answer'}; its log ends:\n{process.tail()}") from error

    async def _move_in(self, spec: WorkerSpec, home: Home, stay: Stay, meeting: Meeting) -> RayBody:
        """Start the worker's process; leave no keeper behind where that fails."""
        try:
            met = await self._meet(spec, home, stay, meeting)
            body = RayBody(met, stay.broker, home.keeper, self._order(met, home))
        except BaseException:
            await stay.broker.call("dismiss", home.keeper)
            raise
        self._bodies.add(body)
        body.swept.add_done_callback(lambda _: self._bodies.discard(body))
        return body

    def _order(self, spec: WorkerSpec, home: Home) -> Order:
        return Order(
            machine=home.address,
            python=spec.python or "",
            arguments=self._reception.arguments(spec, f"tcp:{home.address}:0"),
            variables={**self._reception.variables(spec, {}), **_rank(spec.place)},
            log=str(self._context.logs / f"{spec.name}.log"),
        )

    async def _receive(self, body: RayBody) -> LinkedWorker:
        spec = body.spec
        try:
            async with asyncio.timeout(self._options.start_timeout):
                return await self._reception.receive(spec, body)
        except (WorkerLost, TimeoutError) as error:
            await body.close()
            slow = f"no answer within {self._options.start_timeout:g} s"
            reason = error.reason if isinstance(error, WorkerLost) else slow
            tail = f"; its log ends:\n{body.ending.tail}" if body.ending.tail else "; its log is empty"
            raise WorkerLost(spec.name, f"{reason}, before it could serve{tail}") from error
        except asyncio.CancelledError:
            body.kill()
            raise

    # --- ranks of one group --------------------------------------------------------------------------

    def _meeting(self, spec: WorkerSpec) -> Meeting:
        """Where the ranks of one life of a group meet; each life has a rendezvous of its own."""
        meeting: Meeting = asyncio.get_running_loop().create_future()
        return meeting if spec.place.size == 1 else self._meetings.setdefault(spec.place.rendezvous, meeting)

    async def _meet(self, spec: WorkerSpec, home: Home, stay: Stay, meeting: Meeting) -> WorkerSpec:
        """With a rendezvous at a free port of the machine that rank 0 got."""
        if spec.place.size == 1:
            return spec
        if spec.place.rank == 0:
            port = await stay.broker.call("port", home.keeper, home.address)
            meeting.set_result(f"tcp://{home.address}:{port}")
        rendezvous = await asyncio.shield(meeting)
        if rendezvous is None:
            raise WorkerLost(spec.name, "rank 0 of its group did not start")
        return evolve(spec, place=evolve(spec.place, rendezvous=rendezvous))


def _rank(place: Place) -> Mapping[str, str]:
    """What torch's `env://` reads. Each rank has its own devices, and sees no others."""
    if place.size == 1:
        return {}
    address, _, port = place.rendezvous.removeprefix("tcp://").rpartition(":")
    numbers = {"RANK": place.rank, "WORLD_SIZE": place.size, "LOCAL_RANK": 0}
    return {"MASTER_ADDR": address, "MASTER_PORT": port, **{name: str(n) for name, n in numbers.items()}}
