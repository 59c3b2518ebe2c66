"""What a plugin registers: frozen descriptions of components, never live objects.

A descriptor costs nothing to make and imports nothing heavy. `factory` is a dotted path that is
imported only when a spec selects the component, in the process that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import field, frozen

from areal_core import API_VERSION

if TYPE_CHECKING:
    from areal_core.errors import Finding
    from areal_core.spec.model import Spec

Mechanism = Literal["tensors", "shm-handle", "hf-dir", "process-group"]
Unit = Literal["token", "step"]


@frozen
class NoOptions:
    """The options of a component that has none."""


@frozen
class CheckContext:
    """What a descriptor's `check` may look at: the whole spec, its own options, and where they stand."""

    spec: Spec
    options: Any
    path: tuple[str | int, ...]


Check = Callable[[CheckContext], Iterable["Finding"]]


@frozen(kw_only=True)
class Component:
    """What every kind's descriptor holds.

    `factory` names a callable `factory(options, context)` as `module:attr`; `options` is the attrs
    class of the component's private spec keys (torch-free, one `metadata={"doc": ...}` a field);
    `requires` are PEP 508 strings that are looked up, not imported; `platforms` empty means any;
    `check` adds findings across fields, without importing anything heavy.
    """

    kind: ClassVar[str] = ""

    name: str
    summary: str
    factory: str
    options: type[Any] = NoOptions
    api_version: int = API_VERSION
    requires: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    check: Check | None = field(default=None, repr=False)


@frozen
class PlatformCapabilities:
    """`device` as torch names it; `collective` backend; the variable that limits visible devices."""

    device: str = "cpu"
    collective: str = "gloo"
    visible_devices: str | None = None
    priority: int = 0


@frozen(kw_only=True)
class PlatformDescriptor(Component):
    """A make of device. Factory: `(options, None) -> protocols.Platform`."""

    kind: ClassVar[str] = "platform"
    capabilities: PlatformCapabilities = PlatformCapabilities()


@frozen
class ModelCapabilities:
    """`unit` of its trajectories. `shape` options known without the files go through `check`."""

    unit: Unit = "token"
    random_start: bool = False


@frozen(kw_only=True)
class ModelDescriptor(Component):
    """A source of models. Factory: `(options, ModelContext) -> protocols.ModelSource`.

    `parameters` counts them from the options alone, for `explain`; None where it cannot tell.
    """

    kind: ClassVar[str] = "model"
    parameters: Callable[[Any], int | None] | None = field(default=None, repr=False)
    capabilities: ModelCapabilities = ModelCapabilities()


@frozen
class EngineCapabilities:
    """`accepts` weight mechanisms, best first; `interruptible`: keeps running generations over an update."""

    accepts: tuple[Mechanism, ...] = ("tensors",)
    interruptible: bool = False
    shares_prefix: bool = False
    unit: Unit = "token"
    parallel: tuple[str, ...] = ("dp",)
    lora: bool = False


@frozen(kw_only=True)
class EngineDescriptor(Component):
    """An inference engine. Factory: `(options, EngineContext) -> protocols.Engine`."""

    kind: ClassVar[str] = "engine"
    capabilities: EngineCapabilities = EngineCapabilities()


@frozen
class TrainerCapabilities:
    """`offers`: the mechanisms it can feed; `parallel`: the axes it can spread over."""

    offers: tuple[Mechanism, ...] = ("tensors", "hf-dir")
    parallel: tuple[str, ...] = ("dp",)
    lora: bool = False
    reference: bool = False
    critic: bool = False
    unit: Unit = "token"


@frozen(kw_only=True)
class TrainerDescriptor(Component):
    """A trainer backend. Factory: `(options, TrainerContext) -> protocols.Trainer`."""

    kind: ClassVar[str] = "trainer"
    capabilities: TrainerCapabilities = TrainerCapabilities()


@frozen
class ParallelismCapabilities:
    """`axis`: the name of the mesh dimension in `resources.*.parallel`."""

    axis: str = "dp"


@frozen(kw_only=True)
class ParallelismDescriptor(Component):
    """A way to spread a model over devices. Factory: `(options, context) -> protocols.Parallelism`."""

    kind: ClassVar[str] = "parallelism"
    capabilities: ParallelismCapabilities = ParallelismCapabilities()


@frozen
class TransportCapabilities:
    """`offers` mechanisms, best first. `scope`: how far apart its two ends may be.

    `collective`: both ends must be called at the same time (a process group), so that a version
    cannot be staged before generation is held.
    """

    offers: tuple[Mechanism, ...] = ("tensors",)
    scope: Literal["process", "host", "network"] = "host"
    collective: bool = False


@frozen(kw_only=True)
class TransportDescriptor(Component):
    """Moves weights. Factory: `(options, TransportContext) -> protocols.Transport`, on both ends."""

    kind: ClassVar[str] = "transport"
    capabilities: TransportCapabilities = TransportCapabilities()


@frozen
class EnvironmentCapabilities:
    """`splits` it has; `scores`: it judges its own tasks, so that a `reward` is optional."""

    splits: tuple[str, ...] = ("train", "test")
    scores: bool = False
    demonstrations: bool = False
    unit: Unit = "token"


@frozen(kw_only=True)
class EnvironmentDescriptor(Component):
    """Makes tasks and plays them. Factory: `(options, EnvironmentContext) -> protocols.Environment`."""

    kind: ClassVar[str] = "environment"
    capabilities: EnvironmentCapabilities = EnvironmentCapabilities()


@frozen
class RewardCapabilities:
    """`isolated`: each verification runs in a process that is killed at its time-out."""

    isolated: bool = False


@frozen(kw_only=True)
class RewardDescriptor(Component):
    """Scores an answer. Factory: `(options, RewardContext) -> protocols.Reward`."""

    kind: ClassVar[str] = "reward"
    capabilities: RewardCapabilities = RewardCapabilities()


@frozen
class ObjectiveCapabilities:
    """What it needs. `source` `demonstrate` trains on the tasks' demonstrations, without an engine."""

    source: Literal["generate", "demonstrate"] = "generate"
    min_group_size: int = 1
    critic: bool = False
    reference: bool = False
    dynamic_sampling: bool = False
    unit: Unit = "token"


@frozen(kw_only=True)
class ObjectiveDescriptor(Component):
    """A training objective. Factory: `(options, ObjectiveContext) -> protocols.Objective`."""

    kind: ClassVar[str] = "objective"
    capabilities: ObjectiveCapabilities = ObjectiveCapabilities()


@frozen
class OptimizerCapabilities:
    """`backends` that can use it; empty: any backend built on torch."""

    backends: tuple[str, ...] = ()


@frozen(kw_only=True)
class OptimizerDescriptor(Component):
    """An optimizer. Factory: `(options, OptimizerContext) -> torch.optim.Optimizer`."""

    kind: ClassVar[str] = "optimizer"
    capabilities: OptimizerCapabilities = OptimizerCapabilities()


@frozen
class ExecutorCapabilities:
    """`processes`: workers are processes of their own; `nodes`: on several machines."""

    processes: bool = True
    nodes: bool = False


@frozen(kw_only=True)
class ExecutorDescriptor(Component):
    """Starts workers. Factory: `(options, ExecutorContext) -> protocols.Executor`."""

    kind: ClassVar[str] = "executor"
    capabilities: ExecutorCapabilities = ExecutorCapabilities()


@frozen
class TrackerCapabilities:
    """`remote`: it sends figures off this machine."""

    remote: bool = False


@frozen(kw_only=True)
class TrackerDescriptor(Component):
    """Records figures. Factory: `(options, TrackerContext) -> protocols.Tracker`."""

    kind: ClassVar[str] = "tracker"
    capabilities: TrackerCapabilities = TrackerCapabilities()


KINDS: dict[str, type[Component]] = {
    cls.kind: cls
    for cls in (
        PlatformDescriptor,
        ModelDescriptor,
        EngineDescriptor,
        TrainerDescriptor,
        ParallelismDescriptor,
        TransportDescriptor,
        EnvironmentDescriptor,
        RewardDescriptor,
        ObjectiveDescriptor,
        OptimizerDescriptor,
        ExecutorDescriptor,
        TrackerDescriptor,
    )
}
