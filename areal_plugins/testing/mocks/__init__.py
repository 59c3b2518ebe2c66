"""Mocks of every component kind: deterministic, on the loop's clock, in numpy; a plugin like any other.

What they compute is meant for proofs. The mock trainer's weights are the number of its steps; the
mock engine draws tokens that spell the weights it holds; the mock trainer refuses a token that does
not match the version it is said to be of. On a virtual clock a run of thousands of steps takes a moment.
Each can be told how long its methods take (`latency`) and which calls go wrong (`faults`).

They are no entry point, so that nobody gets one who did not ask for it: a spec names
`plugins: [areal_plugins.testing.mocks]`, and `areal_run` of the pytest plugin brings them along. Nothing
that a spec leaves open (`type: auto`) ever becomes a mock.
"""

from __future__ import annotations

from areal_plugins import (
    EngineCapabilities,
    EngineDescriptor,
    EnvironmentCapabilities,
    EnvironmentDescriptor,
    ExecutorCapabilities,
    ExecutorDescriptor,
    ModelDescriptor,
    ObjectiveCapabilities,
    ObjectiveDescriptor,
    OptimizerDescriptor,
    ParallelismCapabilities,
    ParallelismDescriptor,
    PlatformCapabilities,
    PlatformDescriptor,
    RewardDescriptor,
    TrackerDescriptor,
    TrainerCapabilities,
    TrainerDescriptor,
    TransportCapabilities,
    TransportDescriptor,
    hookimpl,
)
from areal_plugins.testing.mocks import check
from areal_plugins.testing.mocks.options import (
    EngineOptions,
    EnvironmentOptions,
    ObjectiveOptions,
    ParallelismOptions,
    PlatformOptions,
    RewardOptions,
    Script,
    TrainerOptions,
)

_HERE = "areal_plugins.testing.mocks"

CALLS = (
    "start", "materialize", "setup", "begin_stage", "train", "publish", "release", "save_model", "save_state",
    "written", "load_state", "prepare", "commit", "discard", "abort", "stats", "version", "health", "size",
    "run_group", "partial",
)  # fmt: skip
"""What the mock executor can delay and fail: the start of a worker, and calls of the services."""

PLATFORM = PlatformDescriptor(
    name="mock",
    summary="no device at all",
    factory=f"{_HERE}.platform:make",
    options=PlatformOptions,
    automatic=False,
    check=check.script(plain=("count", "missing", "environment")),
    capabilities=PlatformCapabilities(),
)
MODEL = ModelDescriptor(
    name="mock",
    summary="a model of one number",
    factory=f"{_HERE}.model:make",
    options=Script,
    check=check.script(plain=("materialize", "tokenizer")),
)
ENGINE = EngineDescriptor(
    name="mock",
    summary="draws tokens that spell the version of the weights it holds",
    factory=f"{_HERE}.engine:make",
    options=EngineOptions,
    check=check.script(
        coroutines=("start", "abort", "pause", "resume", "load_weights", "close"),
        streams=("generate",),
        plain=("partial",),
    ),
    capabilities=EngineCapabilities(accepts=("tensors", "process-group"), interruptible=True, shares_prefix=True),
)
TRAINER = TrainerDescriptor(
    name="mock",
    summary="counts its steps, and refuses tokens that are not what they are said to be",
    factory=f"{_HERE}.trainer:make",
    options=TrainerOptions,
    check=check.script(plain=("begin_stage", "train", "save_model", "save_state", "write", "load_state")),
    capabilities=TrainerCapabilities(lora=True, reference=True, critic=True, parallel=("dp", "mock")),
)
PARALLELISM = ParallelismDescriptor(
    name="mock",
    summary="leaves the model whole",
    factory=f"{_HERE}.parallelism:make",
    options=ParallelismOptions,
    check=check.script(plain=("apply", "divides")),
    capabilities=ParallelismCapabilities(axis="mock"),
)
OPTIMIZER = OptimizerDescriptor(
    name="mock",
    summary="walks against the sign of the gradient",
    factory=f"{_HERE}.optimizer:make",
    options=Script,
    check=check.script(plain=("step",)),
)
TRANSPORT = TransportDescriptor(
    name="mock",
    summary="hands weights over to workers of the mock executor",
    factory=f"{_HERE}.transport:make",
    options=Script,
    automatic=False,
    check=check.script(plain=("publish", "receive", "release")),
    capabilities=TransportCapabilities(offers=("tensors",), scope="host"),
)
ENVIRONMENT = EnvironmentDescriptor(
    name="mock",
    summary="tasks that are numbers",
    factory=f"{_HERE}.environment:make",
    options=EnvironmentOptions,
    check=check.script(coroutines=("run",), plain=("size", "task")),
    capabilities=EnvironmentCapabilities(demonstrations=True, scores=True),
)
REWARD = RewardDescriptor(
    name="mock",
    summary="the later the weights, the better the answer",
    factory=f"{_HERE}.reward:make",
    options=RewardOptions,
    check=check.script(coroutines=("score",)),
)
OBJECTIVE = ObjectiveDescriptor(
    name="mock",
    summary="the policy gradient, with the batch's mean reward as its baseline",
    factory=f"{_HERE}.objective:make",
    options=ObjectiveOptions,
    check=check.script(plain=("keep", "targets", "loss")),
    capabilities=ObjectiveCapabilities(dynamic_sampling=True),
)
EXECUTOR = ExecutorDescriptor(
    name="mock",
    summary="stands in for processes: workers in this one, whose calls take the time they are told to",
    factory=f"{_HERE}.executor:make",
    options=Script,
    check=check.script(coroutines=CALLS),
    capabilities=ExecutorCapabilities(processes=True),
)
TRACKER = TrackerDescriptor(
    name="mock",
    summary="forgets everything",
    factory=f"{_HERE}.tracker:make",
    options=Script,
    check=check.script(plain=("log", "evaluation", "group", "close")),
)


@hookimpl
def areal_platforms() -> tuple[PlatformDescriptor, ...]:
    return (PLATFORM,)


@hookimpl
def areal_models() -> tuple[ModelDescriptor, ...]:
    return (MODEL,)


@hookimpl
def areal_inference_engines() -> tuple[EngineDescriptor, ...]:
    return (ENGINE,)


@hookimpl
def areal_trainer_backends() -> tuple[TrainerDescriptor, ...]:
    return (TRAINER,)


@hookimpl
def areal_parallelisms() -> tuple[ParallelismDescriptor, ...]:
    return (PARALLELISM,)


@hookimpl
def areal_weight_transports() -> tuple[TransportDescriptor, ...]:
    return (TRANSPORT,)


@hookimpl
def areal_environments() -> tuple[EnvironmentDescriptor, ...]:
    return (ENVIRONMENT,)


@hookimpl
def areal_rewards() -> tuple[RewardDescriptor, ...]:
    return (REWARD,)


@hookimpl
def areal_objectives() -> tuple[ObjectiveDescriptor, ...]:
    return (OBJECTIVE,)


@hookimpl
def areal_optimizers() -> tuple[OptimizerDescriptor, ...]:
    return (OPTIMIZER,)


@hookimpl
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    return (EXECUTOR,)


@hookimpl
def areal_trackers() -> tuple[TrackerDescriptor, ...]:
    return (TRACKER,)
