"""From an experiment to what each worker is told. Starts nothing and imports no component but the platform."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from areal_core.contexts import CriticPlan, LoraPlan, ModuleRef, ObjectiveContext, Place, WorkerSpec
from areal_core.data import Sampling, WeightVersion
from areal_core.errors import InputError
from areal_core.pipeline import layout
from areal_core.pipeline.guard import Rules
from areal_core.pipeline.layout import Slot
from areal_core.pipeline.staleness import Bound
from areal_core.pipeline.weights import Route
from areal_core.protocols import Objective, Platform
from areal_core.spec.experiment import Experiment, Selected, Stage
from areal_core.spec.model import EvaluationSpec, LoraSpec, PipelineSpec, SamplingSpec
from areal_core.workers.build import build, make_ref
from areal_core.workers.plans import (
    EnginePlan,
    EnvironmentPlan,
    ModelPlan,
    RolloutPlan,
    StageOrder,
    TrainerPlan,
    TransportPlan,
)


@frozen
class StageProgram:
    """One stage as the pipeline runs it; `first` and `last` bound its steps, which count over the whole run."""

    name: str
    first: int
    last: int
    order: StageOrder
    environments: tuple[EnvironmentPlan, ...]
    weights: Mapping[str, float]
    mode: str
    group_size: int
    sampling: Sampling
    pipeline: PipelineSpec
    publish_every: int
    evaluation: EvaluationSpec
    evaluation_sampling: Sampling
    guard: Rules
    filter: Objective | None
    """The objective, where it chooses among finished groups (dynamic sampling)."""

    def timeout(self, environment: str) -> float | None:
        """Seconds that a group of this environment may take."""
        return next(plan.timeout for plan in self.environments if plan.name == environment)

    @property
    def bound(self) -> Bound:
        """How far generation may run ahead."""
        return Bound(
            batch_size=self.order.batch_size,
            group_size=self.group_size,
            max_staleness=self.pipeline.max_staleness,
            first_step=self.first,
            last_step=self.last,
            drop=self.pipeline.on_stale == "drop",
        )


@frozen
class Composition:
    """An experiment's workers and stages, and what each worker is told once the model's directory is known."""

    experiment: Experiment
    folder: Path
    debug: bool
    stages: tuple[StageProgram, ...]
    route: Route
    trainers: Callable[[], tuple[WorkerSpec, ...]]
    engine: Callable[[int], WorkerSpec]
    engines: tuple[WorkerSpec, ...]
    rollouts: tuple[WorkerSpec, ...]
    model: ModelPlan
    transport: TransportPlan

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run."""
        return self.stages[-1].last

    @property
    def slots(self) -> int:
        """Completions that one engine works on at once."""
        return self.experiment.stages[0].spec.inference.max_concurrent

    def trainer_plan(self, worker: WorkerSpec, directory: str) -> TrainerPlan:
        """For the rank `worker`."""
        stage = self.experiment.stages[0]
        spec, amp = stage.spec, stage.spec.training.amp
        return TrainerPlan(
            component=self._ref(stage.trainer),
            transport=self.transport,
            model=directory,
            dtype=spec.model.dtype,
            place=worker.place,
            seed=self.experiment.seed,
            work=self._work("trainer"),
            lora=_lora(spec.model.lora),
            micro_batch_tokens=spec.training.micro_batch_tokens,
            activation_checkpointing=spec.training.activation_checkpointing,
            amp={"enabled": amp.enabled, "dtype": amp.dtype, "loss_scale": amp.loss_scale},
            memory_limit=spec.supervision.memory_limit,
        )

    def engine_plan(self, worker: WorkerSpec, directory: str, version: WeightVersion) -> EnginePlan:
        """For the engine `worker`."""
        stage = self.experiment.stages[0]
        return EnginePlan(
            component=self._ref(stage.engine),
            transport=self.transport,
            model=directory,
            dtype=stage.spec.model.dtype,
            place=worker.place,
            seed=self.experiment.seed,
            max_concurrent=self.slots,
            interruptible=stage.spec.pipeline.interruptible and stage.engine.descriptor.capabilities.interruptible,
            work=self._work(worker.name),
            version=version,
            memory_limit=stage.spec.supervision.memory_limit,
        )

    def rollout_plan(self, directory: str, program: StageProgram) -> RolloutPlan:
        """For every rollout worker, in one stage."""
        limit = self.experiment.stages[0].spec.supervision.memory_limit
        seed = self.experiment.seed
        return RolloutPlan(self.model, directory, program.environments, seed, self.debug, limit)

    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with the experiment that goes on from it."""
        stage = self.experiment.stages[0]
        return {
            "seed": self.experiment.seed,
            "model": [self._ref(stage.model).name, dict(self._ref(stage.model).options)],
            "environments": sorted({e.name for s in self.experiment.stages for e in s.environments}),
            "stages": [program.name for program in self.stages],
        }

    def _ref(self, selected: Selected) -> ModuleRef:
        return make_ref(selected, self.experiment.files)

    def _work(self, name: str) -> str:
        return str(self.folder / "work" / name)


def compose(experiment: Experiment, folder: Path, debug: bool) -> Composition:
    """The composition of `experiment` in the run directory `folder`.

    Raises:
        InputError: sizes contradict each other; names the keys.

    """
    stage = experiment.stages[0]
    capabilities = stage.transport.descriptor.capabilities
    make = _Workers(experiment, folder / "work", debug)
    return Composition(
        experiment=experiment,
        folder=folder,
        debug=debug,
        stages=tuple(_programs(experiment)),
        route=Route(stage.transport.name, stage.mechanism, capabilities.collective),
        trainers=make.trainers,
        engine=make.engine,
        engines=make.engines(),
        rollouts=make.rollouts(),
        model=ModelPlan(
            source=make_ref(stage.model, experiment.files),
            cache=str(model_cache()),
            work=str(folder / "work" / "model"),
            seed=experiment.seed,
        ),
        transport=TransportPlan(
            component=make_ref(stage.transport, experiment.files),
            work=str(folder / "work" / "weights"),
            verify=stage.spec.weights.verify,
            bucket_bytes=stage.spec.weights.bucket_mib << 20,
            mechanism=stage.mechanism,
        ),
    )


def model_cache() -> Path:
    """Where converted models are kept between runs: `$AREAL_CACHE`, else `areal-plugins` in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("AREAL_CACHE") or Path(base) / "areal-plugins") / "models"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- stages ----------------------------------------------------------------------------------------


def _programs(experiment: Experiment) -> Iterable[StageProgram]:
    first = 0
    for stage in experiment.stages:
        program = _program(experiment, stage, first)
        yield program
        first = program.last


def _program(experiment: Experiment, stage: Stage, first: int) -> StageProgram:
    spec = stage.spec
    mode = stage.objective.descriptor.capabilities.source
    group_size = spec.objective.group_size if mode == "generate" else 1
    if spec.training.batch_size % group_size:
        problem = f"{spec.training.batch_size} is no multiple of objective.group_size {group_size}"
        raise InputError(f"stage {stage.name}: training.batch_size", problem, "a batch holds whole groups")
    order = _order(experiment, stage, group_size, mode)
    return StageProgram(
        name=stage.name,
        first=first,
        last=first + spec.training.max_steps,
        order=order,
        environments=tuple(
            EnvironmentPlan(
                name=entry.name,
                environment=make_ref(entry.environment, experiment.files),
                reward=make_ref(entry.reward, experiment.files) if entry.reward else None,
                timeout=entry.rollout_timeout or spec.supervision.rollout_timeout,
                reward_timeout=entry.reward_timeout,
            )
            for entry in stage.environments
        ),
        weights={entry.name: entry.weight for entry in stage.environments},
        mode=mode,
        group_size=group_size,
        sampling=_sampling(spec.inference.sampling),
        pipeline=spec.pipeline,
        publish_every=spec.weights.every,
        evaluation=spec.evaluation,
        evaluation_sampling=_evaluation_sampling(spec.evaluation, spec.inference.sampling),
        guard=Rules.of(spec.training),
        filter=_filter(stage, order),
    )


def _order(experiment: Experiment, stage: Stage, group_size: int, mode: str) -> StageOrder:
    training, objective, sampling = stage.spec.training, stage.spec.objective, stage.spec.inference.sampling
    critic = objective.critic
    return StageOrder(
        name=stage.name,
        objective=make_ref(stage.objective, experiment.files),
        objective_context=ObjectiveContext(
            sampling.temperature, sampling.max_new_tokens, training.batch_size, group_size
        ),
        optimizer=make_ref(stage.optimizer, experiment.files),
        learning_rate=training.learning_rate,
        schedule=training.optimizer.schedule,
        warmup_steps=training.optimizer.warmup_steps,
        total_steps=training.max_steps,
        min_ratio=training.optimizer.min_ratio,
        grad_clip=training.grad_clip,
        lag_decay=training.lag_decay,
        batch_size=training.batch_size,
        updates=training.updates,
        temperature=sampling.temperature if mode == "generate" else 1.0,
        critic=None if critic is None else CriticPlan(critic.learning_rate, critic.warmup_steps),
        reference_every=None if objective.reference is None else objective.reference.every,
    )


def _filter(stage: Stage, order: StageOrder) -> Objective | None:
    if not stage.objective.descriptor.capabilities.dynamic_sampling:
        return None
    objective: Objective = build(order.objective, order.objective_context)
    return objective


def _lora(spec: LoraSpec | None) -> LoraPlan | None:
    return None if spec is None else LoraPlan(spec.rank, spec.alpha or 2.0 * spec.rank, spec.dropout, spec.targets)


def _sampling(spec: SamplingSpec) -> Sampling:
    return Sampling(
        temperature=spec.temperature,
        top_p=spec.top_p,
        top_k=spec.top_k,
        max_new_tokens=spec.max_new_tokens,
        min_new_tokens=spec.min_new_tokens,
        stop=spec.stop,
    )


def _evaluation_sampling(evaluation: EvaluationSpec, sampling: SamplingSpec) -> Sampling:
    if evaluation.sampling is not None:
        return _sampling(evaluation.sampling)
    return evolve(_sampling(sampling), temperature=0.0, top_p=1.0, top_k=0)


# --- workers ---------------------------------------------------------------------------------------


class _Workers:
    """Who is started, where, and with how many threads: cores are shared out, devices are not."""

    def __init__(self, experiment: Experiment, work: Path, debug: bool) -> None:
        """In a debug run there is one thread: sums shared out among several may differ in their last bit."""
        self._work = work
        stage = experiment.stages[0]
        self._stage, self._spec = stage, stage.spec
        self._device = stage.platform.descriptor.capabilities.device
        self._platform: Platform = build(make_ref(stage.platform, experiment.files), None)
        self._trainers, self._engines = layout.trainers(self._spec), layout.engines(self._spec)
        executor = experiment.executor.descriptor.capabilities
        self._nodes = executor.nodes
        computing = len(self._trainers) + len(self._engines) if executor.processes else 1
        self._threads = 1 if debug else max(1, cores() // computing)

    def trainers(self) -> tuple[WorkerSpec, ...]:
        """One a rank; each time with another place to meet."""
        size = len(self._trainers)
        meeting = f"file://{self._work}/trainer-{os.urandom(8).hex()}.meeting" if size > 1 else ""
        places = [self._place(slot, rank, size) for rank, slot in enumerate(self._trainers)]
        return tuple(
            self._worker(
                slot.name,
                "trainer",
                evolve(place, rendezvous=meeting),
                self._spec.training.python,
            )
            for slot, place in zip(self._trainers, places, strict=True)
        )

    def engine(self, index: int) -> WorkerSpec:
        """The n-th engine, counted from 0, also beyond those that the spec asks for.

        Raises:
            InputError: there are no devices for it on this machine, which is the only one.

        """
        slot = layout.engine(self._spec, index)
        if index >= len(self._engines) and self._device != "cpu" and not self._nodes:
            self._present(slot)
        return self._worker(slot.name, "engine", self._place(slot), self._spec.inference.python)

    def _present(self, slot: Slot) -> None:
        present = self._platform.count()
        if slot.devices[-1] >= present:
            problem = f"needs the {self._device} devices {', '.join(map(str, slot.devices))}, and there are {present}"
            raise InputError(slot.name, problem, "ask for fewer engines, or begin with fewer devices for training")

    def engines(self) -> tuple[WorkerSpec, ...]:
        return tuple(map(self.engine, range(len(self._engines))))

    def rollouts(self) -> tuple[WorkerSpec, ...]:
        slots = layout.rollouts(self._spec)
        return tuple(WorkerSpec(slot.name, "rollout", Place(), resources={"cpu": 1}) for slot in slots)

    def _place(self, slot: Slot, rank: int = 0, size: int = 1) -> Place:
        return Place(
            rank=rank,
            size=size,
            device=self._device,
            devices=() if self._device == "cpu" else slot.devices,
            threads=self._threads,
            parallel=slot.parallel,
        )

    def _worker(self, name: str, role: str, place: Place, python: str | None) -> WorkerSpec:
        resources = {"cpu": float(place.threads)}
        if place.devices:
            resources[self._device] = float(len(place.devices))
        # Which devices of which machine: an executor that finds the machine finds them too, and says so to the worker.
        seen = evolve(place, devices=()) if self._nodes else place
        return WorkerSpec(name, role, place, self._platform.environment(seen), python, resources)
