"""What a worker is told: plain frozen records that cross the wire. Paths are absolute, as text."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from areal_core.contexts import CriticPlan, LoraPlan, ModuleRef, ObjectiveContext, Place
from areal_core.data import Sampling, TaskRef, TrajectoryGroup, WeightVersion


@frozen
class ModelPlan:
    """A model source and where it may write; `seed` fixes a random start."""

    source: ModuleRef
    cache: str
    work: str
    seed: int


@frozen
class TransportPlan:
    """The transport both sides build."""

    component: ModuleRef
    work: str
    verify: bool = True
    bucket_bytes: int = 256 << 20
    mechanism: str = ""


@frozen
class EnginePlan:
    """For an engine worker. `model` is the materialized directory; `version` what it holds."""

    component: ModuleRef
    transport: TransportPlan
    model: str
    dtype: str
    place: Place
    seed: int
    max_concurrent: int
    interruptible: bool
    work: str
    version: WeightVersion = WeightVersion()
    memory_limit: float | None = None


@frozen
class TrainerPlan:
    """For a trainer rank."""

    component: ModuleRef
    transport: TransportPlan
    model: str
    dtype: str
    place: Place
    seed: int
    work: str
    lora: LoraPlan | None = None
    micro_batch_tokens: int = 0
    activation_checkpointing: bool = False
    amp: dict[str, bool | str | float] = field(factory=dict)
    memory_limit: float | None = None


@frozen
class StageOrder:
    """A stage as trainer ranks see it: references instead of live objects (see `contexts.StagePlan`)."""

    name: str
    objective: ModuleRef
    objective_context: ObjectiveContext
    optimizer: ModuleRef
    learning_rate: float
    schedule: str
    warmup_steps: int
    total_steps: int
    min_ratio: float
    grad_clip: float | None
    lag_decay: float
    batch_size: int
    updates: int
    temperature: float = 1.0
    critic: CriticPlan | None = None
    reference_every: int | None = None


@frozen
class EnvironmentPlan:
    """One environment and its reward, for rollout workers; the seconds that a group, and a verdict, may take."""

    name: str
    environment: ModuleRef
    reward: ModuleRef | None
    timeout: float | None = None
    reward_timeout: float | None = None


@frozen
class RolloutPlan:
    """For a rollout worker. `model` gives the tokenizer of the directory `directory`."""

    model: ModelPlan
    directory: str
    environments: tuple[EnvironmentPlan, ...]
    seed: int
    blocking: bool = False
    memory_limit: float | None = None


@frozen
class GroupOrder:
    """One group to roll out: these `members` of the group `sequence`, against the engine at `engine`.

    `mode` `demonstrate` makes trajectories of the task's demonstration and needs no engine. `begun` are answers
    to go on from (see `workers.partial`).
    """

    sequence: int
    task: TaskRef
    members: tuple[int, ...]
    sampling: Sampling
    seed: int
    engine: str = ""
    mode: str = "generate"
    timeout: float | None = None
    begun: TrajectoryGroup | None = None


@frozen(eq=False)
class GroupResult:
    """A scored group, and the seconds its rollouts spent waiting for rewards."""

    group: TrajectoryGroup
    reward_seconds: float = 0.0


@frozen
class TrainResult:
    """Figures of one step; `seconds` is what the step took there."""

    metrics: dict[str, float]
    seconds: float


@frozen
class Note:
    """Something that a worker has to say: an event of the run, with its figures."""

    kind: str
    text: str
    level: Literal["info", "warning", "error"] = "warning"
    figures: dict[str, float] = field(factory=dict)


@frozen
class Health:
    """How a worker is: what there is to say since the last time."""

    notes: tuple[Note, ...] = ()
