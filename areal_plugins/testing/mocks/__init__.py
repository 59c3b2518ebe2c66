"""Mocks of every component kind: deterministic, on the loop's clock, in numpy; a plugin like any other.

What they compute is meant for proofs. The mock trainer's weights are the number of its steps; the
mock engine draws tokens that spell the weights it holds; the mock trainer refuses a token that does
not match the version it is said to be of. On a virtual clock a run of thousands of steps takes a moment.
"""

from __future__ import annotations

from attrs import field, frozen

from areal_plugins import (
    EngineCapabilities,
    EngineDescriptor,
    EnvironmentCapabilities,
    EnvironmentDescriptor,
    ExecutorCapabilities,
    ExecutorDescriptor,
    ModelDescriptor,
    OptimizerDescriptor,
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

_HERE = "areal_plugins.testing.mocks"


@frozen
class EngineOptions:
    """Lengths are log-uniform between `shortest` and `longest`; one beyond the request's limit is cut there."""

    shortest: int = field(default=1, metadata={"doc": "Fewest tokens of an answer.", "ge": 1})
    longest: int = field(default=10, metadata={"doc": "Most tokens of an answer.", "ge": 1})
    token_seconds: float = field(default=0.0, metadata={"doc": "Time a token takes.", "ge": 0})
    load_seconds: float = field(default=0.0, metadata={"doc": "Time a swap of the weights takes.", "ge": 0})
    stale: bool = field(default=False, metadata={"doc": "Break the contract: keep the first weights for ever."})


@frozen
class TrainerOptions:
    """When it fails, and when its loss is not finite."""

    fails_at: int | None = field(default=None, metadata={"doc": "The step whose training raises."})


@frozen
class TransportOptions:
    """Which fetches fail."""

    fails_at: int | None = field(default=None, metadata={"doc": "The version whose first fetches fail."})
    failures: int = field(default=1, metadata={"doc": "How many of them fail.", "ge": 0})


@frozen
class EnvironmentOptions:
    """Tasks are their own index; every rollout is one turn."""

    size: int | None = field(default=None, metadata={"doc": "Tasks to train on; null is no end."})
    test_size: int = field(default=16, metadata={"doc": "Held-out tasks.", "ge": 0})
    reward_seconds: float = field(default=0.0, metadata={"doc": "Longest time a verdict takes.", "ge": 0})
    failing: tuple[int, ...] = field(default=(), metadata={"doc": "Tasks whose rollout always raises."})
    demonstrates: bool = field(default=True, metadata={"doc": "Whether tasks come with a demonstration."})


@frozen
class RewardOptions:
    """A verdict is the share of `target` steps that the answering weights were trained for."""

    target: int = field(default=100, metadata={"doc": "Steps after which an answer is right.", "ge": 1})
    drawn: bool = field(default=False, metadata={"doc": "Right or wrong, at odds that rise from 1/4 to 3/4."})
    raises: bool = field(default=False, metadata={"doc": "Raise instead of judging."})


@frozen
class ExecutorOptions:
    """Seconds that calls take beside what they compute: by method (`train`, `publish`, `prepare`, ...)."""

    seconds: dict[str, float] = field(factory=dict, metadata={"doc": "Seconds of each method."})


@frozen
class TrackerOptions:
    """A tracker that forgets everything, or cannot bear it."""

    raises: bool = field(default=False, metadata={"doc": "Raise whenever it is told something."})


PLATFORM = PlatformDescriptor(
    name="mock", summary="no device at all", factory=f"{_HERE}.platform:make", capabilities=PlatformCapabilities()
)
MODEL = ModelDescriptor(name="mock", summary="a model of one number", factory=f"{_HERE}.model:make")
ENGINE = EngineDescriptor(
    name="mock",
    summary="draws tokens that spell the version of the weights it holds",
    factory=f"{_HERE}.engine:make",
    options=EngineOptions,
    capabilities=EngineCapabilities(accepts=("tensors", "process-group"), interruptible=True, shares_prefix=True),
)
TRAINER = TrainerDescriptor(
    name="mock",
    summary="counts its steps, and refuses tokens that are not what they are said to be",
    factory=f"{_HERE}.trainer:make",
    options=TrainerOptions,
    capabilities=TrainerCapabilities(lora=True),
)
OPTIMIZER = OptimizerDescriptor(name="mock", summary="does nothing", factory=f"{_HERE}.trainer:make_optimizer")
TRANSPORT = TransportDescriptor(
    name="mock",
    summary="hands weights over to workers of the mock executor",
    factory=f"{_HERE}.transport:make",
    options=TransportOptions,
    capabilities=TransportCapabilities(offers=("tensors",), scope="host"),
)
ENVIRONMENT = EnvironmentDescriptor(
    name="mock",
    summary="tasks that are numbers",
    factory=f"{_HERE}.environment:make",
    options=EnvironmentOptions,
    capabilities=EnvironmentCapabilities(demonstrations=True),
)
REWARD = RewardDescriptor(
    name="mock",
    summary="the later the weights, the better the answer",
    factory=f"{_HERE}.reward:make",
    options=RewardOptions,
)
EXECUTOR = ExecutorDescriptor(
    name="mock",
    summary="stands in for processes: workers in this one, whose calls take the time they are told to",
    factory=f"{_HERE}.executor:make",
    options=ExecutorOptions,
    capabilities=ExecutorCapabilities(processes=True),
)
TRACKER = TrackerDescriptor(
    name="mock", summary="forgets everything", factory=f"{_HERE}.tracker:make", options=TrackerOptions
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
def areal_optimizers() -> tuple[OptimizerDescriptor, ...]:
    return (OPTIMIZER,)


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
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    return (EXECUTOR,)


@hookimpl
def areal_trackers() -> tuple[TrackerDescriptor, ...]:
    return (TRACKER,)
