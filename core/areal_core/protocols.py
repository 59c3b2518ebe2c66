"""What a live component must do. Factories (named in descriptors) return objects of these shapes.

`torch` never appears here: tensors are typed `Any` and paths are `pathlib.Path`. Methods that are
`async` run on their worker's event loop and must not block it; plain methods are called in a
thread of their own (except `inline`, where everything shares one loop). What a method raises
reaches the controller with its traceback and is reported, never turned into a default.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from attrs import field, frozen

if TYPE_CHECKING:
    import numpy as np

    from areal_core.data import (
        Batch,
        Completion,
        GenerateRequest,
        Message,
        Sample,
        Score,
        Task,
        TrajectoryGroup,
        WeightOffer,
        WeightVersion,
    )


# --- what every factory is told ------------------------------------------------------------------


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
    """`side` is `trainer` or `engine`. Collective transports get one rendezvous for all ends.

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


# --- a run -----------------------------------------------------------------------------------------


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


# --- model -----------------------------------------------------------------------------------------


class Platform(Protocol):
    """A make of device."""

    def count(self) -> int:
        """Devices present; 0 where the driver is missing. Imports nothing heavy."""
        ...

    def missing(self) -> str | None:
        """What this machine lacks to use it, in one line; None when nothing."""
        ...

    def environment(self, place: Place) -> Mapping[str, str]:
        """Variables a worker at `place` must start with (visible devices, allocator, time-outs)."""
        ...


class Tokenizer(Protocol):
    """Text to token ids and back."""

    eos_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]:
        """Ids of `text`, without special tokens added."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`, special tokens left out."""
        ...

    def render(self, messages: Sequence[Message]) -> str:
        """The prompt that asks for the assistant's next turn; raises where there is no chat template."""
        ...


class ModelSource(Protocol):
    """Where a model comes from. Engines and trainers only ever see a Hugging Face directory."""

    def materialize(self) -> Path:
        """The directory with `config.json`, safetensors and tokenizer; made once, then found again.

        Raises:
            InputError: the path does not exist or is not a model; names the file.

        """
        ...

    def tokenizer(self, directory: Path) -> Tokenizer | None:
        """The tokenizer in `directory`; None for models without one (classic policies)."""
        ...


# --- generation ------------------------------------------------------------------------------------


@frozen
class EngineStats:
    """Since the start: useful tokens drawn, seconds computing, and what is running or waiting now."""

    generated_tokens: int = 0
    prefilled_tokens: int = 0
    busy_seconds: float = 0.0
    running: int = 0
    waiting: int = 0


class WeightSource(Protocol):
    """The engine's end of one published version, in the one mechanism that both sides chose."""

    mechanism: str

    def tensors(self) -> Iterator[tuple[str, Any]]:
        """`tensors`: canonical name and tensor, a bucket's memory at a time; do not keep them."""
        ...

    def path(self) -> Path:
        """`hf-dir`: a directory to load from."""
        ...

    def handle(self) -> Mapping[str, Any]:
        """`shm-handle` and `process-group`: what the engine needs to fetch the bytes itself."""
        ...


class Engine(Protocol):
    """Generates. One engine a worker (or a worker group); requests are served concurrently.

    A partial rollout is nothing special: while the engine is paused a running completion is kept
    (`interruptible`) and later goes on under the new weights, each token with its own version.
    """

    async def start(self, version: WeightVersion) -> None:
        """Load the model; serve it as `version`."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[Completion]:
        """Yield each of the `n` completions as it ends; the prompt is prefilled once for all.

        Raises:
            InputError: the prompt is empty or leaves no room for a token; names the request.

        """
        ...

    async def abort(self, ids: Sequence[str] | None = None) -> None:
        """End these requests (all for None); their completions are yielded with finish `abort`."""
        ...

    async def pause(self, keep: bool) -> None:
        """Return once nothing computes. `keep` holds running completions, else they finish first."""
        ...

    async def resume(self) -> None:
        """Go on."""
        ...

    async def load_weights(self, source: WeightSource, version: WeightVersion) -> None:
        """Replace the weights in place while paused; drop every cache of the old ones that is not
        knowingly kept. Tokens drawn from now on carry `version`.
        """
        ...

    def stats(self) -> EngineStats:
        """Counters; cheap."""
        ...

    async def close(self) -> None:
        """Free everything."""
        ...


# --- training --------------------------------------------------------------------------------------


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
    on_nonfinite: str = "skip"
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


class Trainer(Protocol):
    """Trains. Every rank of the group is called alike with the whole batch and takes its own part."""

    def begin_stage(self, stage: StagePlan) -> None:
        """A fresh optimizer and schedule under `stage`; the weights stay."""
        ...

    def train(self, batch: Batch) -> Mapping[str, float]:
        """One step. Returns the figures of the step: `loss`, `grad_norm`, `learning_rate`, `entropy`,
        `mismatch` (mean |trainer - engine| log-probability of the same tokens under one version),
        `tokens`, ...; the same numbers for any micro-batch split and any number of ranks.

        A step whose loss or gradient is not finite changes no weight and reports `skipped` 1.
        """
        ...

    def weights(self) -> Iterator[tuple[str, Any]]:
        """Every parameter, whole, under its canonical name; adapters merged. Stable order."""
        ...

    def save_model(self, directory: Path) -> None:
        """A Hugging Face directory that `from_pretrained` loads."""
        ...

    def save_state(self, directory: Path) -> None:
        """All else that a resume needs: weights, optimizer, schedule, random states."""
        ...

    def load_state(self, directory: Path) -> None:
        """Continue exactly from `save_state`, in the stage that has begun."""
        ...

    def close(self) -> None:
        """Free everything."""
        ...


class Transport(Protocol):
    """One end of a weight transport (see `TransportContext.side`)."""

    def publish(
        self, version: WeightVersion, weights: Iterator[tuple[str, Any]], save: Callable[[Path], None]
    ) -> WeightOffer:
        """Trainer side: make `version` fetchable. `weights` yields named tensors, `save` writes a
        Hugging Face directory; a transport uses the one that its mechanism needs.
        """
        ...

    def receive(self, offer: WeightOffer) -> WeightSource:
        """Engine side: fetch or attach `offer`, verified when `verify` is on. Changes no engine.

        Raises:
            TransportError: bytes are missing or damaged.

        """
        ...

    def release(self, version: WeightVersion) -> None:
        """Either side: free what `version` holds. Unknown versions are no error."""
        ...

    def close(self) -> None:
        """Free everything; leave no file, segment or port."""
        ...


# --- tasks and judgement ---------------------------------------------------------------------------


@frozen
class Reply:
    """What a model answered to an environment."""

    text: str
    tokens: tuple[int, ...]
    finish: str


class Session(Protocol):
    """One rollout's link to the model; it records every token, so that text is never re-tokenized."""

    member: int
    seed: int

    async def generate(self, prompt: str | Sequence[Message] | None = None, **overrides: Any) -> Reply:
        """The model's next turn. `prompt` opens the conversation; None continues after `append`.

        `overrides` are fields of `Sampling`. Members of a group that ask the same at the same time
        share one request.
        """
        ...

    def append(self, text: str) -> None:
        """Add what the environment says (a tool's result, the user's next turn), never trained on."""
        ...

    async def score(self, answer: str) -> Score:
        """The verdict of the reward that the spec gives this environment."""
        ...


class Environment(Protocol):
    """Makes tasks by index, and plays them.

    `task` is a pure function of `(split, index)`: the same in every process and after a resume. It and
    `size` are called on the loop and must be quick; what takes long belongs into the factory. An
    environment may have an `async def close(self)`, called when its worker ends.
    """

    def size(self, split: str) -> int | None:
        """How many tasks; None when there is no end. 0 when the split does not exist."""
        ...

    def task(self, split: str, index: int) -> Task:
        """The task; raises `InputError` naming file and line when its source is wrong, `IndexError` beyond `size`."""
        ...

    async def run(self, task: Task, session: Session) -> Score:
        """Play one episode. A single turn is `session.score((await session.generate(task.prompt)).text)`."""
        ...


class Reward(Protocol):
    """Judges answers. What it raises is counted and retried, and in the end fails the run.

    It may have an `async def close(self)`, called when its worker ends.
    """

    async def score(self, sample: Sample) -> Score:
        """The verdict; the same for the same sample."""
        ...


# --- objective -------------------------------------------------------------------------------------


@frozen(eq=False)
class BatchArrays:
    """A batch as ragged columns: S trajectories one after another, T units in all, shared prompts left out.

    Per trajectory [S]: `rewards` float64, `group` int64 (0..G-1), `truncated` bool.
    Per unit [T]: `trajectory` int64 (0..S-1), `mask` float64, `behaviour` float64 (log-probabilities),
    `lag` int64 (batch step minus version step; 0 where not drawn), and where the objective's
    capabilities ask for them `reference` (log-probabilities) and `values` (the critic's, of the state
    before the unit is drawn) float64.
    """

    step: int
    rewards: np.ndarray
    group: np.ndarray
    truncated: np.ndarray
    trajectory: np.ndarray
    mask: np.ndarray
    behaviour: np.ndarray
    lag: np.ndarray
    reference: np.ndarray | None = None
    values: np.ndarray | None = None


@frozen(eq=False)
class Targets:
    """What an objective makes of a batch before any gradient: all [T] float64.

    `advantages` a unit; `weights` a unit, already normalized over the whole batch, so that
    micro-batch losses simply add; `returns` for a critic. `metrics` go into the step's figures.

    Where a batch is split by whole groups into several updates, advantages stay those of the batch and
    a part's weights are multiplied by S / S_part, whatever the objective: the parts' losses, each
    weighted by its share of the trajectories, average to the batch's.
    """

    advantages: np.ndarray
    weights: np.ndarray
    returns: np.ndarray | None = None
    metrics: Mapping[str, float] = field(factory=dict)


@frozen(eq=False)
class LossInputs:
    """One micro-batch of whole trajectories, as torch tensors [t]; only `logp`, `entropy` and
    `values` carry gradients. A backend may leave out units whose mask is 0.

    `proximal` is the policy at the start of the step (detached), `trajectory` counts 0..s-1 within
    the micro-batch. `entropy` is None unless the objective asked for it.
    """

    logp: Any
    proximal: Any
    behaviour: Any
    advantages: Any
    weights: Any
    mask: Any
    trajectory: Any
    lag: Any
    entropy: Any = None
    reference: Any = None
    values: Any = None
    old_values: Any = None
    returns: Any = None


class Objective(Protocol):
    """Pure functions of arrays."""

    needs_entropy: bool
    needs_reference: bool
    needs_critic: bool

    def keep(self, rewards: np.ndarray) -> bool:
        """Whether a whole group [G] is worth training on (dynamic sampling); True for most."""
        ...

    def targets(self, arrays: BatchArrays) -> Targets:
        """Advantages and normalized weights over the whole optimizer batch."""
        ...

    def loss(self, inputs: LossInputs) -> tuple[Any, Mapping[str, Any]]:
        """The micro-batch's share of the loss (a scalar tensor; shares add up to the batch's), and
        sums over its units for metrics (each divided by the batch's masked units afterwards).
        """
        ...


# --- execution and records -------------------------------------------------------------------------


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


class Peer(Protocol):
    """The other end of a link to a service: see `workers.service` for the roles."""

    name: str

    async def call(self, method: str, *args: Any, timeout: float | None = None) -> Any:
        """The method's result.

        Raises:
            RemoteError: it raised there. WorkerLost: the link ended first. TimeoutError.

        """
        ...

    def stream(self, method: str, *args: Any) -> AsyncIterator[Any]:
        """What an async-generator method yields; leaving the loop early cancels it there."""
        ...

    async def close(self) -> None:
        """End the link; the process goes on."""
        ...


class Worker(Peer, Protocol):
    """The controller's handle of one worker, the same under every executor."""

    spec: WorkerSpec
    address: str
    pid: int | None

    async def lost(self) -> str:
        """Return, once it is gone, with the reason (exit code, signal); wait until then."""
        ...

    async def stop(self, grace: float) -> None:
        """Ask it to end, then make it."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...


@frozen
class ExecutorContext:
    """`logs`: where workers' output goes; `files`: local plugins every worker imports first.

    `heartbeat`: seconds of silence after which a worker process counts as hung and is killed.
    """

    run_id: str
    logs: Path
    files: tuple[str, ...] = ()
    heartbeat: float = 60.0


class Executor(Protocol):
    """Starts workers."""

    async def start(self, spec: WorkerSpec) -> Worker:
        """A worker whose service answers; raises `WorkerLost` with the tail of its log if it dies first."""
        ...

    async def close(self) -> None:
        """End every worker that is left."""
        ...


class Tracker(Protocol):
    """Records a run's figures; called off the controller's loop."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Figures of optimizer step `step`."""
        ...

    def evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Figures of an evaluation of the weights after `step`."""
        ...

    def group(self, group: TrajectoryGroup) -> None:
        """A group that enters the buffer."""
        ...

    def close(self) -> None:
        """Flush."""
        ...


class Parallelism(Protocol):
    """Spreads a model over one axis of a device mesh."""

    def apply(self, model: Any, mesh: Any) -> Any:
        """The model with this axis's sharding applied; `mesh` is a torch DeviceMesh."""
        ...

    def divides(self, shape: Mapping[str, int], size: int) -> Iterable[str]:
        """What does not divide by `size` in a model of `shape` (heads, experts, ...), in words."""
        ...
