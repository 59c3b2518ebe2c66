"""The spec as frozen attrs classes. Field names are the YAML keys; docs become help and schema.

Keys here are common to every component; the private ones are described by the component's own
options class and stand in `options` (inline) or `blocks` (a block named after the component).

attrs compiles each method of each class when it is imported, which is much of what `check` costs:
the classes of this package have no repr (a spec is shown as YAML) and no hash (it holds mappings),
and those that are never compared have no equality.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen


def _doc(text: str, default: Any = None, *, factory: Any = None, **limits: Any) -> Any:
    """A field with its documentation; `limits` are those of `structure`: bounds, `path`, `name`."""
    metadata = {"doc": text, **limits}
    return field(factory=factory, metadata=metadata) if factory else field(default=default, metadata=metadata)


@frozen(repr=False, unsafe_hash=False)
class Use:
    """A component chosen by name, with its private options as written."""

    type: str
    options: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class PlatformSpec:
    """Make of device. Private options stand in a block named after the platform."""

    type: str = _doc("Make of device; `auto` takes the best one present.", "auto")
    blocks: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class ExecutorSpec:
    """How workers are started and reached. Private options stand in a block named after the executor."""

    type: str = _doc("Executor.", "local")
    blocks: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class LoraSpec:
    """Low-rank adapters instead of full training."""

    rank: int = _doc("Rank of the adapters.", 8, ge=1)
    alpha: float | None = _doc("Scale is alpha / rank; twice the rank when left out.", None)
    dropout: float = _doc("Dropout on the adapters' input.", 0.0, ge=0, lt=1)
    targets: tuple[str, ...] = _doc("Modules by name; empty means every linear layer.", ())


@frozen(repr=False, unsafe_hash=False)
class ModelSpec:
    """What is trained. Private options of the source stand inline."""

    type: str = _doc("Model source.", "hf")
    name: str | None = _doc("A name for people; shown in reports.", None)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _doc(
        "Number format; auto takes what the device does fast.", "auto"
    )
    lora: LoraSpec | None = _doc("Train adapters only.", None)
    options: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class PoolSpec:
    """Devices of one pool: `num_gpus`, or `num_nodes` x `gpus_per_node`; of any make."""

    num_gpus: int | None = _doc("Devices in all.", None, ge=1)
    num_nodes: int | None = _doc("Machines.", None, ge=1)
    gpus_per_node: int | None = _doc("Devices a machine.", None, ge=1)
    parallel: str | Mapping[str, int] | None = _doc(
        "Size of each axis, as `{dp: 2, tp: 2}`; a bare axis takes all devices.", None
    )

    @property
    def devices(self) -> int:
        if self.num_gpus is not None:
            return self.num_gpus
        return (self.num_nodes or 1) * (self.gpus_per_node or 1)

    @property
    def nodes(self) -> int:
        if self.num_nodes is not None:
            return self.num_nodes
        return -(-self.devices // self.gpus_per_node) if self.gpus_per_node else 1

    @property
    def axes(self) -> Mapping[str, int]:
        """Size of each axis; without `parallel`, all devices are data-parallel."""
        if isinstance(self.parallel, Mapping):
            return self.parallel
        return {self.parallel or "dp": self.devices}


@frozen(repr=False, unsafe_hash=False)
class RolloutPoolSpec:
    """Processes that run environments and rewards."""

    cpus: int = _doc("Rollout workers.", 1, ge=1)


@frozen(repr=False, unsafe_hash=False)
class ResourcesSpec:
    """What each pool may use."""

    train: PoolSpec = _doc("Devices that train.", factory=PoolSpec)
    infer: PoolSpec = _doc("Devices that generate.", factory=PoolSpec)
    rollout: RolloutPoolSpec = _doc("Processes of environments and rewards.", factory=RolloutPoolSpec)


@frozen(repr=False, unsafe_hash=False)
class SamplingSpec:
    """How answers are drawn."""

    temperature: float = _doc("0 is greedy.", 1.0, ge=0)
    top_p: float = _doc("Nucleus; 1 is off.", 1.0, gt=0, le=1)
    top_k: int = _doc("0 is off.", 0, ge=0)
    max_new_tokens: int = _doc("Longest answer in tokens.", 256, ge=1)
    min_new_tokens: int = _doc("Shortest answer in tokens.", 0, ge=0)
    stop: tuple[str, ...] = _doc("Texts that end an answer.", ())


@frozen(repr=False, unsafe_hash=False)
class ServeSpec:
    """An OpenAI-compatible endpoint for agents, off unless a port or key is asked for."""

    host: str = _doc("Address to listen on.", "127.0.0.1")
    port: int = _doc("0 takes a free one.", 0, ge=0, le=65535)
    api_key: str = _doc("`auto` makes one for the run.", "auto")


@frozen(repr=False, unsafe_hash=False)
class InferenceSpec:
    """The engine and how it is asked."""

    type: str = _doc("Inference engine.", "torch")
    max_concurrent: int = _doc("Completions an engine works on at once.", 64, ge=1)
    sampling: SamplingSpec = _doc("How answers are drawn.", factory=SamplingSpec)
    serve: ServeSpec = _doc("Endpoint for agents.", factory=ServeSpec)
    python: str | None = _doc("Interpreter of the engine's own environment.", None, path=True)
    blocks: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class AmpSpec:
    """Mixed precision."""

    enabled: bool = _doc("Compute in a shorter format than the weights.", False)
    dtype: Literal["bf16", "fp16"] = _doc("The shorter format.", "bf16")
    loss_scale: Literal["dynamic"] | float = _doc("Scale of the loss for fp16.", "dynamic", gt=0)


@frozen(repr=False, unsafe_hash=False)
class OptimizerSpec:
    """The optimizer and its schedule, counted in optimizer steps. Private options stand inline."""

    type: str = _doc("Optimizer.", "adamw")
    schedule: Literal["constant", "linear", "cosine"] = _doc("Decay after the warm-up.", "constant")
    warmup_steps: int = _doc("Steps of linear rise.", 0, ge=0)
    min_ratio: float = _doc("Where the decay ends, as a share of the learning rate.", 0.0, ge=0, le=1)
    options: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class GradGuardSpec:
    """Gradients that are too large to be clipped and applied: their step is left out. Off, unless a limit is given."""

    norm: float | None = _doc("Largest norm that is applied; null is no limit.", None, gt=0)
    ratio: float | None = _doc("The same, in medians of the recent steps' norms; null is no limit.", None, gt=1)
    window: int = _doc("Recent steps that the median is of.", 64, ge=2)
    then: Literal["skip", "reload", "stop"] = _doc("What else such a step does.", "skip")


@frozen(repr=False, unsafe_hash=False)
class TrainingSpec:
    """The backend and how it trains."""

    backend: str = _doc("Trainer backend.", "torch")
    batch_size: int = _doc("Trajectories an optimizer step consumes.", 32, ge=1)
    learning_rate: float = _doc("Before warm-up and decay.", 1e-5, gt=0)
    max_steps: int = _doc("Steps of the stage.", 100, ge=1)
    updates: int = _doc("Successive optimizer updates a batch is split into.", 1, ge=1)
    optimizer: OptimizerSpec = _doc("Optimizer and schedule.", factory=OptimizerSpec)
    grad_clip: float | None = _doc("Largest gradient norm; null is off.", 1.0, gt=0)
    on_nonfinite: Literal["skip", "reload", "stop"] = _doc(
        "What a loss or gradient that is not finite does: its step is left out, and then what.", "skip"
    )
    grad_guard: GradGuardSpec = _doc("What a gradient that explodes does.", factory=GradGuardSpec)
    micro_batch_tokens: int = _doc("Most tokens of one forward pass; 0 chooses.", 0, ge=0)
    activation_checkpointing: bool = _doc("Recompute activations in the backward pass.", False)
    amp: AmpSpec = _doc("Mixed precision.", factory=AmpSpec)
    lag_decay: float = _doc("lr = lr0 / (1 + lag_decay * mean lag).", 0.0, ge=0)
    python: str | None = _doc("Interpreter of the trainer's own environment.", None, path=True)
    blocks: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class WeightsSpec:
    """How weights reach the engines. Left to `auto`, the best mechanism both sides know is taken."""

    type: str = _doc("Weight transport.", "auto")
    verify: bool = _doc("Checksums on every transfer.", True)
    every: int = _doc("Steps from one version to the next; max_staleness + 1 at most.", 1, ge=1)
    bucket_mib: int = _doc("Extra memory a transfer may take.", 256, ge=1)
    blocks: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class ReferenceSpec:
    """The frozen policy that KL is measured against: the model as it was before training."""

    every: int | None = _doc("Renew it every so many steps; null never.", None, ge=1)


@frozen(repr=False, unsafe_hash=False)
class CriticSpec:
    """The value model of objectives that have one."""

    learning_rate: float = _doc("Its own learning rate.", 1e-5, gt=0)
    warmup_steps: int = _doc("Steps that train the critic alone.", 0, ge=0)


@frozen(repr=False, unsafe_hash=False)
class ObjectiveSpec:
    """What is optimized. Private options stand inline."""

    type: str = _doc("Objective.", "grpo")
    group_size: int = _doc("Rollouts of one task; demonstrations are always single.", 8, ge=1)
    reference: ReferenceSpec | None = _doc("Frozen policy for KL.", None)
    critic: CriticSpec | None = _doc("Value model.", None)
    options: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class EnvironmentSpec:
    """One source of tasks. Private options stand inline."""

    type: str = _doc("Environment.", "jsonl")
    name: str | None = _doc("Name in figures and tasks; the type when left out.", None, name=True)
    weight: float = _doc("Share of the tasks drawn.", 1.0, ge=0)
    reward: Use | None = _doc("Judge of the answers; the environment's own when left out.", None)
    rollout_timeout: float | None = _doc("Seconds a group may take; null: as in `supervision`.", None, gt=0)
    reward_timeout: float | None = _doc("Seconds one verdict may take; null is no limit.", None, gt=0)
    options: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class PipelineSpec:
    """How far generation may run ahead of training."""

    max_staleness: int = _doc("Largest lag of a trained token, in steps; 0 is on-policy.", 4, ge=0)
    on_stale: Literal["wait", "drop"] = _doc("Wait for the oldest work, or drop what is too old.", "wait")
    interruptible: bool = _doc("Keep running generations over a weight update.", True)
    queue_size: int | Literal["auto"] = _doc("Most groups under way; auto follows the staleness.", "auto", ge=1)


@frozen(repr=False, unsafe_hash=False)
class SupervisionSpec:
    """When to give up on what."""

    heartbeat_timeout: float = _doc("Seconds of silence that mean a worker hangs.", 60.0, gt=0)
    health_every: float = _doc("Seconds between two questions to a worker how it is.", 10.0, gt=0)
    max_restarts: int = _doc("Restarts a worker gets in a row; see `forgive_after`.", 3, ge=0)
    restart_backoff: float = _doc("Seconds before a second restart in a row; doubled for each further one.", 1.0, ge=0)
    forgive_after: float = _doc("Seconds of service after which a worker's restarts no longer count.", 300.0, gt=0)
    start_timeout: float = _doc("Seconds an engine or rollout worker may take until it serves.", 1800.0, gt=0)
    update_timeout: float = _doc("Seconds an engine may take to fetch a version, and to swap it in.", 600.0, gt=0)
    train_timeout: float | None = _doc("Seconds one call of the trainer may take; null is no limit.", 3600.0, gt=0)
    max_reloads: int = _doc("Times in a row a run goes back to one checkpoint because of a step.", 3, ge=0)
    memory_limit: float | None = _doc("Share of its memory above which a worker makes room.", 0.9, gt=0, le=1)
    task_retries: int = _doc("Times a failed rollout is tried again.", 2, ge=0)
    max_failed_share: float = _doc("Share of recent tasks that may fail.", 0.2, ge=0, le=1)
    rollout_timeout: float | None = _doc("Seconds one group may take; null is no limit.", 3600.0, gt=0)
    straggler_factor: float | None = _doc(
        "A group that takes so many medians is rolled out elsewhere, too; null: never.", 4.0, gt=1
    )
    straggler_floor: float = _doc("Seconds before which no group is a straggler.", 30.0, ge=0)


@frozen(repr=False, unsafe_hash=False)
class EvaluationSpec:
    """Scores on tasks that are not trained on."""

    every: int | None = _doc("Steps between evaluations; null: only before and after.", None, ge=1)
    before: bool = _doc("Evaluate before the first step.", True)
    after: bool = _doc("Evaluate after the last step.", True)
    samples: int = _doc("Tasks an evaluation.", 128, ge=1)
    split: str = _doc("Which tasks.", "test")
    sampling: SamplingSpec | None = _doc("Greedy unless said otherwise; length and stops as in inference.", None)

    @property
    def enabled(self) -> bool:
        """Whether any evaluation happens."""
        return self.before or self.after or self.every is not None


@frozen(repr=False, unsafe_hash=False)
class CheckpointSpec:
    """What is kept of the run. The last step is always saved."""

    every: int | None = _doc("Steps between checkpoints; null: only the last.", None, ge=1)
    keep: int = _doc("Checkpoints kept.", 2, ge=1)


@frozen(repr=False, unsafe_hash=False)
class StageSpec:
    """A part of the run that overrides sections of the spec; `overrides` is merged over them."""

    name: str = field(metadata={"doc": "Name of the stage."})
    overrides: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, unsafe_hash=False)
class FileSpec:
    """What a file may say about itself, beside the experiment: it is used up while loading."""

    apiVersion: str = _doc("Version of this format; `areal/v1`.", "areal/v1")  # noqa: N815 (the YAML key)
    extends: str | tuple[str, ...] = _doc("Files this one overrides, or one file; relative to this one.", ())
    plugins: tuple[str, ...] = _doc("Further plugins: files, relative to this one, or names of installed modules.", ())
    stages: tuple[StageSpec, ...] = _doc("Parts of the run, in order; each overrides the sections above.", ())


@frozen(repr=False, unsafe_hash=False)
class Spec:
    """One experiment."""

    name: str = _doc("Name of the run.", "run", name=True)
    seed: int = _doc("Fixes everything that is drawn at random.", 0, ge=0)
    model: ModelSpec = _doc("What is trained.", factory=ModelSpec)
    platform: PlatformSpec = _doc("Make of device.", factory=PlatformSpec)
    executor: ExecutorSpec = _doc("How workers are started.", factory=ExecutorSpec)
    resources: ResourcesSpec = _doc("Devices and processes of each pool.", factory=ResourcesSpec)
    placement: Literal["disjoint", "colocated"] = _doc("Whether both pools share devices.", "disjoint")
    inference: InferenceSpec = _doc("The engine.", factory=InferenceSpec)
    training: TrainingSpec = _doc("The backend.", factory=TrainingSpec)
    parallel: Mapping[str, str] = _doc("MoE short form: the axes of expert and other weights.", factory=dict)
    weights: WeightsSpec = _doc("The weight transport.", factory=WeightsSpec)
    objective: ObjectiveSpec = _doc("What is optimized.", factory=ObjectiveSpec)
    environments: tuple[EnvironmentSpec, ...] = _doc("Sources of tasks.", ())
    pipeline: PipelineSpec = _doc("Asynchrony.", factory=PipelineSpec)
    supervision: SupervisionSpec = _doc("Failures.", factory=SupervisionSpec)
    evaluation: EvaluationSpec = _doc("Held-out scores.", factory=EvaluationSpec)
    checkpoint: CheckpointSpec = _doc("What is kept.", factory=CheckpointSpec)
    trackers: tuple[Use, ...] = _doc("Records of figures.", (Use("jsonl"),))
