"""A run's workers by what they do: how each is made fit to serve, at the start and after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from areal_core.data import WeightVersion
from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.background import together
from areal_core.pipeline.compose import Composition, StageProgram
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.health import HUNG
from areal_core.pipeline.pool import Pool, Seat
from areal_core.pipeline.supervise import GRACE, Supervisor
from areal_core.pipeline.tasks import Source
from areal_core.protocols import Executor
from areal_core.workers.group import WorkerGroup
from areal_core.workers.plans import EnvironmentPlan

Join = Callable[[Seat, float], Awaitable[None]]
"""Lets an engine that is set up serve; raises TimeoutError where that takes more than so many seconds."""


class Crew:
    """The trainer's ranks, the engines and the rollout workers."""

    def __init__(
        self, composition: Composition, executor: Executor, supervisor: Supervisor, condition: Condition, join: Join
    ) -> None:
        """`join` lets an engine that is set up serve, the first time and whenever it was restarted."""
        self._composition, self._supervisor, self._condition, self._join = composition, supervisor, condition, join
        supervision = composition.experiment.stages[0].spec.supervision
        self._limit = supervision.start_timeout
        self.trainer = WorkerGroup("trainer", executor, composition.trainers, supervision.train_timeout)
        self.engines = Pool(composition.engines, condition, whole=composition.route.collective)
        self.rollouts = Pool(composition.rollouts, condition)
        self._directory = ""
        self._version = WeightVersion()
        self._program = composition.stages[0]
        self._equipped: tuple[EnvironmentPlan, ...] | None = self._program.environments
        self._renewing = asyncio.Lock()

    @property
    def slots(self) -> int:
        """Completions that the engines which serve work on at once."""
        return len(self.engines.ready) * self._composition.slots

    async def start(self, version: WeightVersion, model: str = "") -> None:
        """Start everyone at the same time; `model` is a directory to use instead of the spec's model.

        Whoever is lost before the run has begun is started again, under the same limits as later.
        """
        insist, name = self._supervisor.insist, self.trainer.name
        await together([insist(name, lambda: self._find_model(model)), self._supervisor.start(self._others)])
        await together([insist(name, self._bring_trainer), self._bring_others(version)])

    async def restart_trainer(self) -> None:
        """Where the trainer is broken, bring up new ranks, which have begun no stage.

        Raises:
            WorkerLost: they did not come up.

        """
        try:
            await self._bring_trainer()
        except (RemoteError, OSError) as error:
            self.trainer.kill(f"it did not come back: {error}")
            raise WorkerLost(self.trainer.name, str(error)) from error

    async def start_engines(self, version: WeightVersion, model: str) -> None:
        """Start engines and rollout workers alone, on the model in the directory `model`."""
        await self._supervisor.start(self._others)
        self._directory = model
        await self._bring_others(version)

    async def renew(self, version: WeightVersion) -> None:
        """Replace engines and rollout workers by fresh ones; nothing may be under way but another renewal."""
        async with self._renewing:
            await self._supervisor.dismiss(self._others)
            await self._supervisor.start(self._others)
            await self._bring_others(version)

    async def hire_engine(self, index: int) -> Seat:
        """One more engine that serves, the n-th; raises where there is no device for it, or it does not start."""
        seat = Seat(self._composition.engine(index))
        await self._supervisor.take_in(self.engines, seat, self._bring_engine)
        return seat

    async def let_go(self, engine: Seat, grace: float) -> None:
        """End an engine once it has finished what it works on; what takes longer than `grace` is done by others."""
        self.engines.remove(engine)
        engine.ready = False
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._condition.until(lambda: not engine.load)
        await self._supervisor.dismiss([engine])

    async def begin(self, program: StageProgram) -> None:
        """Give the rollout workers the environments of the next stage; nothing may be under way."""
        self._program = program
        if program.environments != self._equipped:
            self._equipped = None  # as long as only some of them have changed over
            await together([self._equip(seat) for seat in self.rollouts.ready])
            await self._condition.until(lambda: self.rollouts.serves)
            self._equipped = program.environments

    async def sources(self, split: str) -> list[Source]:
        """The stage's environments with the sizes of their `split`."""
        return [
            Source(name, weight, await self.rollouts.ask("size", name, split))
            for name, weight in self._program.weights.items()
        ]

    async def end(self, grace: float) -> None:
        """End everyone, the sooner the better; who cleans up gets `grace` seconds for it."""
        held = (seat.held for seat in self._others)
        workers = [*self.trainer.ranks, *(worker for worker in held if worker is not None)]
        await asyncio.gather(*(worker.stop(grace) for worker in workers), return_exceptions=True)

    @property
    def _others(self) -> list[Seat]:
        return [*self.engines.seats, *self.rollouts.seats]

    async def _find_model(self, model: str) -> None:
        await self._start_trainer()
        try:
            self._directory = model or await self.trainer.ranks[0].call("materialize", self._composition.model)
        except WorkerLost as error:
            self.trainer.end(self.trainer.ranks[0], error.reason)
            raise

    async def _start_trainer(self) -> None:
        """Start the ranks, unless they are there."""
        if self.trainer.broken or not self.trainer.ranks:
            await self.trainer.restart(GRACE)

    async def _bring_trainer(self) -> None:
        await self._start_trainer()
        plan = self._composition.trainer_plan
        await self.trainer.call_each("setup", [(plan(rank.spec, self._directory),) for rank in self.trainer.ranks])

    async def _bring_engine(self, seat: Seat) -> None:
        plan = self._composition.engine_plan(seat.spec, self._directory, self._version)
        await seat.worker.call("setup", plan, timeout=self._limit)
        await self._join(seat, self._limit)

    async def _bring_others(self, version: WeightVersion) -> None:
        self._version = version
        await together(
            [
                *(self._supervisor.settle(self.engines, seat, self._bring_engine) for seat in self.engines.seats),
                *(self._supervisor.settle(self.rollouts, seat, self._bring_rollout) for seat in self.rollouts.seats),
            ]
        )

    async def _equip(self, seat: Seat) -> None:
        """Set a worker up for the stage that begins, unless it is lost: so is whoever takes its seat."""
        worker, plan = seat.worker, self._composition.rollout_plan(self._directory, self._program)
        try:
            await worker.call("setup", plan, timeout=self._limit)
        except WorkerLost:
            seat.lose(worker)
        except TimeoutError:
            seat.end(worker, f"{HUNG} it was not set up for {self._program.name} within {self._limit:g} s")

    async def _bring_rollout(self, seat: Seat) -> None:
        program = None
        while program is not self._program:  # a stage may begin meanwhile
            program = self._program
            plan = self._composition.rollout_plan(self._directory, program)
            await seat.worker.call("setup", plan, timeout=self._limit)
        seat.ready = True
        self._condition.changed()
