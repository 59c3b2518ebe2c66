"""What a component is told: by its factory's context, and by the plans of a run. Frozen data, no behaviour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

if TYPE_CHECKING:
    from areal_core.protocols import Objective


@frozen
class Place:
    """Where a worker computes: its rank in its group, and the devices and threads that are its own."""

    rank: int = 0
    size: int = 1
    device: str = "cpu"
    devices: tuple[int, ...] = ()
    threads: int = 1
    rendezvous: str = ""
    parallel: Mapping[str, int] = field(factory=dict)


@frozen
class LoraPlan:
    """Low-rank adapters: rank, scale `alpha / rank`, dropout, and the modules by name (empty: all linear)."""

    rank: int
    alpha: float
    dropout: float = 0.0
    targets: tuple[str, ...] = ()


@frozen
class ModelContext:
    """`cache`: a folder for converted models that outlives the run; `work`: one inside the run directory."""

    cache: Path
    work: Path
    seed: int


@frozen
class EngineContext:
    """`model`: the Hugging Face directory to load; `dtype` `auto` lets the engine choose."""

    model: Path
    dtype: str
    place: Place
    seed: int
    max_concurrent: int
    interruptible: bool
    work: Path


@frozen
class TrainerContext:
    """As `EngineContext`; `micro_batch_tokens` bounds the tokens of one forward pass (0: choose)."""

    model: Path
    dtype: str
    place: Place
    seed: int
    work: Path
    lora: LoraPlan | None = None
    micro_batch_tokens: int = 0
    activation_checkpointing: bool = False
    amp: Mapping[str, Any] = field(factory=dict)


@frozen
class TransportContext:
    """`side` is `trainer` or `engine`.

    `mechanism` is the one that trainer, transport and engine have in common; empty: the transport's best.
    """

    side: str
    place: Place
    work: Path
    verify: bool
    bucket_bytes: int
    mechanism: str = ""


@frozen
class EnvironmentContext:
    """`name` as in the spec; relative paths in options are already absolute.

    `reward` names the reward that the spec gives; None: the environment judges its own tasks.
    `blocking`: as for rewards.
    """

    name: str
    seed: int
    reward: str | None = None
    blocking: bool = False


@frozen
class RewardContext:
    """`blocking`: a verification in another process is waited for on the loop, so that the order
    of events depends on the seed alone (debug mode).
    """

    name: str
    blocking: bool = False


@frozen
class ObjectiveContext:
    """`sampling.temperature` of the behaviour policy, its length limit, and the sizes of a batch."""

    temperature: float
    max_new_tokens: int
    batch_size: int
    group_size: int


@frozen
class OptimizerContext:
    """`parameters`: torch parameter groups; `learning_rate` before any schedule."""

    parameters: Sequence[Mapping[str, Any]]
    learning_rate: float


@frozen
class TrackerContext:
    """Where a tracker may write, and the run it belongs to."""

    run: RunInfo


@frozen
class RunInfo:
    """A run by name and place; `spec` is the resolved spec as plain data."""

    name: str
    directory: Path
    seed: int
    spec: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen
class RunSummary:
    """How a run ended: `done`, `stopped` or `failed`, after how many steps, and with which scores.

    `evaluations` are accuracies as `before/NAME` and `after/NAME` of an environment; `checkpoint` is
    the last one written, a model directory; empty when there is none.
    """

    outcome: str
    steps: int
    seconds: float
    evaluations: Mapping[str, float] = field(factory=dict)
    cause: str = ""
    checkpoint: str = ""


@frozen
class OptimizerPlan:
    """`build(context)` makes the optimizer. The schedule counts optimizer steps from the stage's start.

    `total_steps` are the stage's batches, each worth `StagePlan.updates` optimizer steps.
    """

    build: Callable[[OptimizerContext], Any]
    learning_rate: float
    schedule: str = "constant"
    warmup_steps: int = 0
    total_steps: int = 0
    min_ratio: float = 0.0
    grad_clip: float | None = None
    lag_decay: float = 0.0


@frozen
class CriticPlan:
    """The value model has the stage's optimizer at its own rate; for `warmup_steps` batches it alone is trained."""

    learning_rate: float
    warmup_steps: int = 0


@frozen
class StagePlan:
    """One stage of training: what is optimized and how; `updates` successive optimizer steps a batch.

    Log-probabilities are those of the logits divided by `temperature`: the sampler's, or 1 where
    nothing was sampled (demonstrations). The reference policy is the model at the stage's start,
    renewed every `reference_every` batches; None never.
    """

    name: str
    objective: Objective
    optimizer: OptimizerPlan
    batch_size: int
    updates: int = 1
    temperature: float = 1.0
    critic: CriticPlan | None = None
    reference_every: int | None = None


@frozen
class ModuleRef:
    """A component to build in another process: its dotted factory, its options' class and values.

    `files` are local plugin files that must be imported first.
    """

    kind: str
    name: str
    factory: str
    options_type: str
    options: Mapping[str, Any] = field(factory=dict)
    files: tuple[str, ...] = ()


@frozen
class WorkerSpec:
    """A process to start: what it is called and does (`engine`, `trainer`, `rollout`), where, and how."""

    name: str
    role: str
    place: Place
    environment: Mapping[str, str] = field(factory=dict)
    python: str | None = None
    resources: Mapping[str, float] = field(factory=dict)


def _unheard(text: str) -> None:
    """Nobody listens."""


@frozen
class ExecutorContext:
    """`logs`: where workers' output goes; `files`: local plugins every worker imports first.

    `heartbeat`: seconds of silence after which a worker process counts as hung and is killed.
    `workers`: those that the run begins with, so that they can be placed together; others may join.
    `report`: tells the run's owner what a start waits for.
    `modules`: what workers of this interpreter will import, which an executor may do for all of them at once.
    """

    run_id: str
    logs: Path
    files: tuple[str, ...] = ()
    heartbeat: float = 60.0
    workers: tuple[WorkerSpec, ...] = ()
    report: Callable[[str], None] = field(default=_unheard, repr=False)
    modules: tuple[str, ...] = ()
