"""What a plugin registers: frozen descriptions of components, never live objects.

A descriptor costs nothing to make and imports nothing heavy. `factory` is a dotted path that is
imported only when a spec selects the component, in the process that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

from attrs import Factory, field, frozen

from areal_core import API_VERSION
from areal_core.errors import PluginError
from areal_core.importing import import_object

if TYPE_CHECKING:
    from areal_core.errors import Finding
    from areal_core.spec.model import Spec

C = TypeVar("C")
"""The capabilities of a kind."""

Mechanism = Literal["tensors", "shm-handle", "hf-dir", "process-group"]
Unit = Literal["token", "step"]


@frozen
class NoOptions:
    """The options of a component that has none."""


@frozen(repr=False, eq=False)
class CheckContext:
    """What a descriptor's `check` may look at: the whole spec, its own options, and where they stand."""

    spec: Spec
    options: Any
    path: tuple[str | int, ...]


Check = Callable[[CheckContext], Iterable["Finding"]]


@frozen(kw_only=True, eq=False)
class Component(Generic[C]):
    """What every kind's descriptor holds.

    `factory` names a callable `factory(options, context)` as `module:attr`; `options` is the attrs
    class of the component's private spec keys (torch-free, one `metadata={"doc": ...}` a field), or
    names it as `module:attr`, which is imported when a spec or a person asks for the component;
    `requires` are PEP 508 strings that are looked up, not imported; `platforms` empty means any;
    `check` adds findings across fields, without importing anything heavy; `automatic` False keeps a
    component that is not for real runs from ever being chosen where a spec says `auto`.
    """

    kind: ClassVar[str] = ""
    default_capabilities: ClassVar[Any] = None

    name: str
    summary: str
    factory: str
    _options: type[Any] | str = NoOptions
    api_version: int = API_VERSION
    requires: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    check: Check | None = field(default=None, repr=False)
    automatic: bool = True
    capabilities: C = field(default=Factory(lambda self: self.default_capabilities, takes_self=True), repr=False)

    @property
    def options(self) -> type[Any]:
        """The class of the component's options.

        Raises:
            PluginError: it is named, and cannot be imported.
        """
        if not isinstance(self._options, str):
            return self._options
        try:
            found: type[Any] = import_object(self._options)
        except Exception as error:  # a plugin's code
            problem = f"its options {self._options!r} cannot be imported: {type(error).__name__}: {error}"
            raise PluginError(f"{self.kind}/{self.name}", problem, _shown_by(self._options)) from error
        return found


def _shown_by(name: str) -> str:
    """The command that shows the whole traceback of an import."""
    return f"see python -c 'import {name.partition(':')[0]}'"


@frozen(repr=False, unsafe_hash=False)
class PlatformCapabilities:
    """`device` as torch names it; `collective` backend; the variable that limits visible devices."""

    device: str = "cpu"
    collective: str = "gloo"
    visible_devices: str | None = None
    priority: int = 0


class PlatformDescriptor(Component[PlatformCapabilities]):
    """A make of device. Factory: `(options, None) -> protocols.Platform`."""

    kind: ClassVar[str] = "platform"
    default_capabilities: ClassVar[Any] = PlatformCapabilities()


@frozen(repr=False, unsafe_hash=False)
class ModelCapabilities:
    """`unit` of its trajectories. `random_start`: it can begin with random weights, which the seed fixes."""

    unit: Unit = "token"
    random_start: bool = False


@frozen(kw_only=True, repr=False, eq=False)
class ModelShape:
    """Sizes of a decoder: `kv_width` numbers are a layer's keys of one token, and as many its values.

    `inner` is the width of the feed-forward layers, `positions` the longest sequence in tokens.
    """

    layers: int
    hidden: int
    inner: int
    kv_width: int
    positions: int


@frozen(kw_only=True, eq=False)
class ModelDescriptor(Component[ModelCapabilities]):
    """A source of models. Factory: `(options, ModelContext) -> protocols.ModelSource`.

    `parameters` counts them from the options alone, and `shape` gives the sizes, for `explain`; None where
    it cannot tell.
    """

    kind: ClassVar[str] = "model"
    parameters: Callable[[Any], int | None] | None = field(default=None, repr=False)
    shape: Callable[[Any], ModelShape | None] | None = field(default=None, repr=False)
    default_capabilities: ClassVar[Any] = ModelCapabilities()


@frozen(repr=False, unsafe_hash=False)
class EngineCapabilities:
    """`accepts` weight mechanisms, best first; `interruptible`: keeps running generations over an update."""

    accepts: tuple[Mechanism, ...] = ("tensors",)
    interruptible: bool = False
    shares_prefix: bool = False
    unit: Unit = "token"
    parallel: tuple[str, ...] = ("dp",)
    lora: bool = False


class EngineDescriptor(Component[EngineCapabilities]):
    """An inference engine. Factory: `(options, EngineContext) -> protocols.Engine`."""

    kind: ClassVar[str] = "engine"
    default_capabilities: ClassVar[Any] = EngineCapabilities()


@frozen(repr=False, unsafe_hash=False)
class TrainerCapabilities:
    """`offers`: the mechanisms it can feed; `parallel`: the axes it can spread over."""

    offers: tuple[Mechanism, ...] = ("tensors", "hf-dir")
    parallel: tuple[str, ...] = ("dp",)
    lora: bool = False
    reference: bool = False
    critic: bool = False
    unit: Unit = "token"


class TrainerDescriptor(Component[TrainerCapabilities]):
    """A trainer backend. Factory: `(options, TrainerContext) -> protocols.Trainer`."""

    kind: ClassVar[str] = "trainer"
    default_capabilities: ClassVar[Any] = TrainerCapabilities()


@frozen(repr=False, unsafe_hash=False)
class ParallelismCapabilities:
    """`axis`: the name of the mesh dimension in `resources.*.parallel`."""

    axis: str = "dp"


class ParallelismDescriptor(Component[ParallelismCapabilities]):
    """A way to spread a model over devices. Factory: `(options, context) -> protocols.Parallelism`."""

    kind: ClassVar[str] = "parallelism"
    default_capabilities: ClassVar[Any] = ParallelismCapabilities()


@frozen(repr=False, unsafe_hash=False)
class TransportCapabilities:
    """`offers` mechanisms, best first. `scope`: how far apart its two ends may be.

    `collective`: both ends must be called at the same time (a process group), so that a version
    cannot be staged before generation is held.
    """

    offers: tuple[Mechanism, ...] = ("tensors",)
    scope: Literal["process", "host", "network"] = "host"
    collective: bool = False


class TransportDescriptor(Component[TransportCapabilities]):
    """Moves weights. Factory: `(options, TransportContext) -> protocols.Transport`, on both ends."""

    kind: ClassVar[str] = "transport"
    default_capabilities: ClassVar[Any] = TransportCapabilities()


@frozen(repr=False, unsafe_hash=False)
class EnvironmentCapabilities:
    """`splits` it has; `scores`: it judges its own tasks, so that a `reward` is optional."""

    splits: tuple[str, ...] = ("train", "test")
    scores: bool = False
    demonstrations: bool = False
    unit: Unit = "token"


class EnvironmentDescriptor(Component[EnvironmentCapabilities]):
    """Makes tasks and plays them. Factory: `(options, EnvironmentContext) -> protocols.Environment`."""

    kind: ClassVar[str] = "environment"
    default_capabilities: ClassVar[Any] = EnvironmentCapabilities()


@frozen(repr=False, unsafe_hash=False)
class RewardCapabilities:
    """`isolated`: each verification runs in a process that is killed at its time-out."""

    isolated: bool = False


class RewardDescriptor(Component[RewardCapabilities]):
    """Scores an answer. Factory: `(options, RewardContext) -> protocols.Reward`."""

    kind: ClassVar[str] = "reward"
    default_capabilities: ClassVar[Any] = RewardCapabilities()


@frozen(repr=False, unsafe_hash=False)
class ObjectiveCapabilities:
    """What it needs. `source` `demonstrate` trains on the tasks' demonstrations, without an engine."""

    source: Literal["generate", "demonstrate"] = "generate"
    min_group_size: int = 1
    critic: bool = False
    reference: bool = False
    dynamic_sampling: bool = False
    unit: Unit = "token"


class ObjectiveDescriptor(Component[ObjectiveCapabilities]):
    """A training objective. Factory: `(options, ObjectiveContext) -> protocols.Objective`."""

    kind: ClassVar[str] = "objective"
    default_capabilities: ClassVar[Any] = ObjectiveCapabilities()


@frozen(repr=False, unsafe_hash=False)
class OptimizerCapabilities:
    """`backends` that can use it; empty: any backend built on torch."""

    backends: tuple[str, ...] = ()


class OptimizerDescriptor(Component[OptimizerCapabilities]):
    """An optimizer. Factory: `(options, OptimizerContext) -> torch.optim.Optimizer`."""

    kind: ClassVar[str] = "optimizer"
    default_capabilities: ClassVar[Any] = OptimizerCapabilities()


@frozen(repr=False, unsafe_hash=False)
class ExecutorCapabilities:
    """`processes`: workers are processes of their own; `nodes`: on several machines."""

    processes: bool = True
    nodes: bool = False


class ExecutorDescriptor(Component[ExecutorCapabilities]):
    """Starts workers. Factory: `(options, ExecutorContext) -> protocols.Executor`."""

    kind: ClassVar[str] = "executor"
    default_capabilities: ClassVar[Any] = ExecutorCapabilities()


@frozen(repr=False, unsafe_hash=False)
class TrackerCapabilities:
    """`remote`: it sends figures off this machine."""

    remote: bool = False


class TrackerDescriptor(Component[TrackerCapabilities]):
    """Records figures. Factory: `(options, TrackerContext) -> protocols.Tracker`."""

    kind: ClassVar[str] = "tracker"
    default_capabilities: ClassVar[Any] = TrackerCapabilities()


KINDS: dict[str, type[Component[Any]]] = {
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
