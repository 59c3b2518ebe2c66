"""What a trainer rank offers: steps, versions published to the engines, and checkpoints."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from areal_core.contexts import ModelContext, OptimizerContext, OptimizerPlan, StagePlan, TrainerContext
from areal_core.data import Batch, WeightOffer, WeightVersion
from areal_core.errors import ComponentError
from areal_core.protocols import ModelSource, Trainer, Transport
from areal_core.workers.build import build, title
from areal_core.workers.guard import Guard
from areal_core.workers.lane import Lane
from areal_core.workers.plans import Health, ModelPlan, StageOrder, TrainerPlan, TrainResult
from areal_core.workers.service import Dial
from areal_core.workers.transport import build_transport


@frozen
class _Live:
    name: str
    trainer: Trainer
    transport_name: str
    transport: Transport


class TrainerService:
    """One trainer rank, and the trainer's end of the weight transport, in one thread of their own.

    What a save leaves to be written is written in another one, while training goes on.
    """

    def __init__(self, dial: Dial | None = None, threaded: bool = True) -> None:
        self._lane = Lane("trainer", threaded)
        self._writer = Lane("writer", threaded)
        self._writing: list[asyncio.Task[None]] = []
        self._owned = AsyncExitStack()
        self._live: _Live | None = None
        self._threaded = threaded
        self._guard: Guard | None = None

    async def materialize(self, plan: ModelPlan) -> str:
        """Make the model's Hugging Face directory, or find it; its path."""
        return await self._lane.call(title(plan.source), "materialize", _materialize, plan)

    async def setup(self, plan: TrainerPlan) -> None:
        """Build the trainer on the model; once in a worker's life."""
        name, transport_name = title(plan.component), title(plan.transport.component)
        if self._live is not None:
            raise ComponentError(name, "setup", "the worker is set up already")
        transport = await self._lane.call(
            transport_name, "build", build_transport, plan.transport, "trainer", plan.place
        )
        self._owned.push_async_callback(self._lane.call, transport_name, "close", transport.close)
        trainer: Trainer = await self._lane.call(name, "build", build, plan.component, _context(plan))
        self._owned.push_async_callback(self._lane.call, name, "close", trainer.close)
        self._live = _Live(name, trainer, transport_name, transport)
        host = self._threaded and plan.place.device == "cpu"
        self._guard = Guard(trainer, plan.memory_limit, host, run=partial(self._lane.call, name))
        self._owned.callback(self._guard.close)
        self._lane.settle()

    async def begin_stage(self, order: StageOrder) -> None:
        """A fresh objective, optimizer and schedule; the weights stay."""
        live = self._ready("begin_stage")

        def begin() -> None:
            live.trainer.begin_stage(_stage(order))

        await self._lane.call(live.name, f"begin stage {order.name}", begin)

    async def train(self, batch: Batch) -> TrainResult:
        """One optimizer step."""
        live, clock = self._ready("train"), asyncio.get_running_loop()
        began = clock.time()
        metrics = await self._lane.call(live.name, f"train step {batch.step}", live.trainer.train, batch)
        return TrainResult({name: float(value) for name, value in metrics.items()}, clock.time() - began)

    async def publish(self, version: WeightVersion) -> WeightOffer:
        """Make the weights as they are now fetchable as `version`."""
        live = self._ready("publish")

        def publish() -> WeightOffer:
            return live.transport.publish(version, live.trainer.weights(), partial(_save_whole, live.trainer))

        return await self._lane.call(live.transport_name, f"publish {version}", publish)

    async def release(self, version: WeightVersion) -> None:
        """Free what `version` holds; every engine has it, or never will."""
        live = self._ready("release")
        await self._lane.call(live.transport_name, f"release {version}", live.transport.release, version)

    async def save_model(self, directory: str) -> None:
        """Begin to write a Hugging Face directory, of the weights as they are now; `written` waits for the end."""
        await self._save("save_model", directory)

    async def save_state(self, directory: str) -> None:
        """Begin to write all else that a resume needs, as it is now; `written` waits for the end."""
        await self._save("save_state", directory)

    async def written(self) -> None:
        """Return once all that was saved is on disk, whatever the trainer does meanwhile; raises what went wrong."""
        writing, self._writing = self._writing, []
        for outcome in await asyncio.gather(*writing, return_exceptions=True):
            if outcome is not None:
                raise outcome

    async def load_state(self, directory: str) -> None:
        """Continue from `save_state`, in the stage that has begun."""
        await self._with_directory("load_state", directory)

    async def health(self) -> Health:
        """How it is, and what there is to say of it since the last time."""
        return Health() if self._guard is None else self._guard.report()

    async def close(self) -> None:
        """Close the trainer, then the transport."""
        self._live = None
        await self._owned.aclose()
        self._lane.close()
        self._writer.close()

    async def _save(self, operation: str, directory: str) -> None:
        """What the trainer leaves to be written is written in a thread of its own."""
        rest = await self._with_directory(operation, directory)
        if rest is not None:
            call = self._writer.call(self._ready(operation).name, f"{operation} {directory}", rest)
            self._writing.append(asyncio.ensure_future(call))

    async def _with_directory(self, operation: str, directory: str) -> Any:
        live = self._ready(operation)
        method = getattr(live.trainer, operation)
        return await self._lane.call(live.name, f"{operation} {directory}", method, Path(directory))

    def _ready(self, operation: str) -> _Live:
        if self._live is None:
            raise ComponentError("trainer", operation, "the worker was not set up")
        return self._live


def _save_whole(trainer: Trainer, directory: Path) -> None:
    rest = trainer.save_model(directory)
    if rest is not None:
        rest()


def _materialize(plan: ModelPlan) -> str:
    context = ModelContext(cache=Path(plan.cache), work=Path(plan.work), seed=plan.seed)
    source: ModelSource = build(plan.source, context)
    return str(source.materialize())


def _stage(order: StageOrder) -> StagePlan:
    def optimizer(context: OptimizerContext) -> Any:
        return build(order.optimizer, context)

    return StagePlan(
        name=order.name,
        objective=build(order.objective, order.objective_context),
        optimizer=OptimizerPlan(
            build=optimizer,
            learning_rate=order.learning_rate,
            schedule=order.schedule,
            warmup_steps=order.warmup_steps,
            total_steps=order.total_steps,
            min_ratio=order.min_ratio,
            grad_clip=order.grad_clip,
            lag_decay=order.lag_decay,
        ),
        batch_size=order.batch_size,
        updates=order.updates,
        temperature=order.temperature,
        critic=order.critic,
        reference_every=order.reference_every,
    )


def _context(plan: TrainerPlan) -> TrainerContext:
    return TrainerContext(
        model=Path(plan.model),
        dtype=plan.dtype,
        place=plan.place,
        seed=plan.seed,
        work=Path(plan.work),
        lora=plan.lora,
        micro_batch_tokens=plan.micro_batch_tokens,
        activation_checkpointing=plan.activation_checkpointing,
        amp=plan.amp,
    )
