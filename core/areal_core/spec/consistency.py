"""What must hold between fields, whatever the components are. Each check is a generator of conflicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import prod

from areal_core.errors import Severity
from areal_core.spec.model import PoolSpec, SamplingSpec, ServeSpec
from areal_core.spec.scene import Conflict, Scene, conflict

Conflicts = Iterator[Conflict]


def conflicts(scene: Scene) -> Conflicts:
    """All that is contradictory in one stage."""
    for check in CHECKS:
        yield from check(scene)


def batch_of_groups(scene: Scene) -> Conflicts:
    """An optimizer step consumes whole groups."""
    batch, group = scene.spec.training.batch_size, scene.spec.objective.group_size
    if batch % group:
        message = f"batch_size {batch} is no multiple of objective.group_size {group}"
        near = max(group, round(batch / group) * group)
        yield conflict("batch-not-groups", message, *_BATCH, hint=f"{near} would be")


def group_size(scene: Scene) -> Conflicts:
    """Some objectives compare the members of a group."""
    needs = scene.capabilities("objective")
    if needs and scene.spec.objective.group_size < needs.min_group_size:
        message = f"{scene.name('objective')} needs groups of at least {needs.min_group_size}"
        yield conflict("group-too-small", message, "objective.group_size", "objective.type")


def updates(scene: Scene) -> Conflicts:
    """A batch is split into as many parts as it has updates."""
    training = scene.spec.training
    if training.updates > training.batch_size:
        message = f"a batch of {training.batch_size} cannot be split into {training.updates} updates"
        yield conflict("too-many-updates", message, "training.updates", "training.batch_size")


def queue(scene: Scene) -> Conflicts:
    """With fewer groups under way than a batch has, no batch is ever full."""
    size = scene.spec.pipeline.queue_size
    groups = -(-scene.spec.training.batch_size // scene.spec.objective.group_size)
    if isinstance(size, int) and size < groups:
        message = f"queue_size {size} never fills a batch of {groups} groups"
        yield conflict("queue-too-small", message, "pipeline.queue_size", *_BATCH, hint=f"at least {groups}, or auto")


def weights_every(scene: Scene) -> Conflicts:
    """Steps that no version follows are trained on what was drawn before them."""
    every, bound = scene.spec.weights.every, scene.spec.pipeline.max_staleness
    objective = scene.capabilities("objective")
    if every > bound + 1 and (objective is None or objective.source == "generate"):
        message = f"weights every {every} steps make tokens {every - 1} steps old, and max_staleness is {bound}"
        reads = ("weights.every", "pipeline.max_staleness")
        yield conflict("weights-too-rare", message, *reads, hint=f"at most {bound + 1}")


def samplings(scene: Scene) -> Conflicts:
    """Length limits in order."""
    yield from _sampling(scene.spec.inference.sampling, "inference.sampling")
    if scene.spec.evaluation.sampling is not None:
        yield from _sampling(scene.spec.evaluation.sampling, "evaluation.sampling")


def pool_sizes(scene: Scene) -> Conflicts:
    """`num_gpus` and `num_nodes` x `gpus_per_node` say the same, or one is left out."""
    for name in ("train", "infer"):
        yield from _pool_size(getattr(scene.spec.resources, name), f"resources.{name}")


def axes(scene: Scene) -> Conflicts:
    """Axes exist, multiply to the pool's devices, and the component can spread over them."""
    yield from _axes(scene, "train", "training", "backend")
    yield from _axes(scene, "infer", "inference", "type")


def expert_axes(scene: Scene) -> Conflicts:
    """The MoE short form: `parallel: {expert: AXIS, other: AXIS}`."""
    for key, axis in scene.spec.parallel.items():
        path = f"parallel.{key}"
        if key not in ("expert", "other"):
            yield conflict("unknown-key", path, path, hint="there are: expert, other")
        else:
            devices = scene.spec.resources.train.devices
            yield from _axis(scene, axis, devices, path, "training", "backend")


def endpoint(scene: Scene) -> Conflicts:
    """No engine is reachable from outside a run in this version."""
    if scene.spec.inference.serve != ServeSpec():
        message = "no endpoint is served in this version"
        yield conflict("idle-section", message, "inference.serve", hint="remove it", severity=Severity.UNAVAILABLE)


def placement(scene: Scene) -> Conflicts:
    """Colocated pools are one, and no engine sleeps yet while the trainer works."""
    if scene.spec.placement == "colocated":
        message = "engines that share the trainer's devices do not sleep in this version"
        yield conflict("idle-section", message, "placement", hint="use disjoint", severity=Severity.UNAVAILABLE)
    train, infer = scene.spec.resources.train, scene.spec.resources.infer
    if scene.spec.placement == "colocated" and train.devices != infer.devices:
        message = f"colocated pools share devices, and train has {train.devices} where infer has {infer.devices}"
        yield conflict("unequal-pools", message, "placement", "resources.train", "resources.infer")


def executor(scene: Scene) -> Conflicts:
    """What an executor cannot reach."""
    able, name = scene.capabilities("executor"), scene.name("executor")
    if able is None:
        return
    resources = scene.spec.resources
    written = scene.part("executor")
    severity = Severity.ERROR if written and written.written else Severity.UNAVAILABLE
    if not able.nodes and (nodes := max(resources.train.nodes, resources.infer.nodes)) > 1:
        message = f"executor {name} starts workers on one machine, and resources ask for {nodes}"
        yield conflict("too-many-nodes", message, "executor.type", "resources", hint="use `ray`", severity=severity)
    if able.processes:
        return
    if (devices := max(resources.train.devices, resources.infer.devices)) > 1:
        message = f"executor {name} is one process, and resources ask for {devices} devices"
        yield conflict("too-many-devices", message, "executor.type", "resources", hint="use `local`")
    for section in ("inference", "training"):
        if getattr(scene.spec, section).python is not None:
            message = f"executor {name} is one process, with one interpreter"
            yield conflict("one-interpreter", message, f"{section}.python", "executor.type", hint="use `local`")


def units(scene: Scene) -> Conflicts:
    """Everyone counts in the same unit: tokens, or an environment's steps."""
    sections = ("model", "inference", "training", "objective")
    found = {section: scene.capabilities(section).unit for section in sections if scene.capabilities(section)}
    found |= {f"environments.{i}": part.descriptor.capabilities.unit for i, part in scene.environments()}
    if len(set(found.values())) > 1:
        words = ", ".join(f"{section} in {unit}s" for section, unit in found.items())
        odd = Counter(found.values()).most_common()[-1][0]
        where = next(section for section, unit in found.items() if unit == odd)
        yield conflict("unit-mismatch", f"the components count in different units: {words}", where)


def lora(scene: Scene) -> Conflicts:
    """Adapters need a trainer that has them."""
    trainer = scene.capabilities("training")
    if trainer and scene.spec.model.lora is not None and not trainer.lora:
        message = f"trainer {scene.name('training')} trains no adapters"
        yield conflict("no-lora", message, "model.lora", "training.backend", hint="remove it, or change the backend")


def companions(scene: Scene) -> Conflicts:
    """The critic and the reference policy that an objective needs live in the trainer."""
    needs, trainer = scene.capabilities("objective"), scene.capabilities("training")
    if needs and scene.spec.objective.critic is not None and not needs.critic:
        message = f"{scene.name('objective')} has no critic"
        yield conflict("idle-section", message, "objective.critic", "objective.type", hint="remove it")
    if needs is None or trainer is None:
        return
    for companion in ("critic", "reference"):
        implied, asked = getattr(needs, companion), getattr(scene.spec.objective, companion) is not None
        if (implied or asked) and not getattr(trainer, companion):
            message = f"trainer {scene.name('training')} has no {companion}, which {scene.name('objective')} needs"
            where = "objective.type" if implied else f"objective.{companion}"
            yield conflict(f"no-{companion}", message, where, "training.backend")


def optimizer(scene: Scene) -> Conflicts:
    """Some optimizers are one backend's own."""
    able = scene.capabilities("training", "optimizer")
    backend = scene.name("training")
    if able and able.backends and backend not in able.backends:
        name = scene.name("training", "optimizer")
        message = f"optimizer {name} works with {', '.join(able.backends)}, not with {backend}"
        yield conflict("wrong-optimizer", message, "training.optimizer.type", "training.backend")


def precision(scene: Scene) -> Conflicts:
    """Mixed precision computes in a shorter format than the weights have."""
    amp, dtype = scene.spec.training.amp, scene.spec.model.dtype
    if not amp.enabled:
        return
    if dtype in ("bfloat16", "float16"):
        message = f"amp computes in {amp.dtype}, and the weights are {dtype} already"
        yield conflict("amp-without-effect", message, "training.amp.enabled", "model.dtype", hint="use dtype: float32")
    if amp.loss_scale != "dynamic" and amp.dtype == "bf16":
        message = "bf16 has the range of float32 and takes no loss scale"
        yield conflict("amp-without-effect", message, "training.amp.loss_scale", "training.amp.dtype")
    platform = scene.part("platform")
    if amp.dtype == "fp16" and platform and platform.descriptor and platform.descriptor.capabilities.device == "cpu":
        severity = Severity.ERROR if platform.written else Severity.UNAVAILABLE
        message = "fp16 is not trained with on a CPU"
        yield conflict("wrong-precision", message, "training.amp.dtype", "platform", hint="use bf16", severity=severity)


def trackers(scene: Scene) -> Conflicts:
    """Two of a kind would write the same files."""
    seen: set[str] = set()
    for index, use in enumerate(scene.spec.trackers):
        if use.type in seen:
            yield conflict("duplicate-name", f"tracker {use.type} is there twice", f"trackers.{index}")
        seen.add(use.type)


_BATCH = ("training.batch_size", "objective.group_size")


def _sampling(sampling: SamplingSpec, path: str) -> Conflicts:
    if sampling.min_new_tokens > sampling.max_new_tokens:
        message = f"min_new_tokens {sampling.min_new_tokens} is more than max_new_tokens {sampling.max_new_tokens}"
        yield conflict("lengths-crossed", message, f"{path}.min_new_tokens", f"{path}.max_new_tokens")
    for index, stop in enumerate(sampling.stop):
        if not stop:
            yield conflict("bad-value", "an empty text ends every answer at once", f"{path}.stop.{index}")


def _pool_size(pool: PoolSpec, path: str) -> Conflicts:
    gpus, nodes, each = pool.num_gpus, pool.num_nodes, pool.gpus_per_node
    if gpus is None:
        return
    if nodes is not None and each is not None and nodes * each != gpus:
        message = f"num_gpus {gpus} contradicts num_nodes {nodes} x gpus_per_node {each} = {nodes * each}"
    elif each is None and nodes is not None and gpus % nodes:
        message = f"num_gpus {gpus} does not divide over num_nodes {nodes}"
    elif nodes is None and each is not None and gpus % each:
        message = f"num_gpus {gpus} does not divide by gpus_per_node {each}"
    else:
        return
    reads = [f"{path}.{key}" for key in ("num_gpus", "num_nodes", "gpus_per_node")]
    yield conflict("contradictory-sizes", message, *reads, hint="give one of the two")


def _axes(scene: Scene, pool_name: str, section: str, selector: str) -> Conflicts:
    pool: PoolSpec = getattr(scene.spec.resources, pool_name)
    path = f"resources.{pool_name}.parallel"
    if isinstance(pool.parallel, Mapping):
        if bad := [axis for axis, size in pool.parallel.items() if size < 1]:
            yield from (conflict("out-of-range", f"{path}.{axis} must be at least 1", f"{path}.{axis}") for axis in bad)
        elif prod(pool.parallel.values()) != pool.devices:
            product = " x ".join(f"{axis} {size}" for axis, size in pool.parallel.items()) or "nothing"
            message = f"{product} is {prod(pool.parallel.values())}, and the pool has {pool.devices} devices"
            sizes = [f"resources.{pool_name}.{key}" for key in ("num_gpus", "num_nodes", "gpus_per_node")]
            yield conflict("wrong-world-size", message, path, *sizes, hint=f"set resources.{pool_name}.num_gpus")
    for axis, size in pool.axes.items():
        yield from _axis(scene, axis, size, path, section, selector)


def _axis(scene: Scene, axis: str, size: int, path: str, section: str, selector: str) -> Conflicts:
    """The axis exists, and unless it is of one device, the component can spread over it."""
    able = scene.capabilities(section)
    if axis not in scene.known_axes:
        hint = f"there are: {', '.join(sorted(scene.known_axes))}"
        yield conflict("unknown-axis", f"no axis is called {axis!r}", path, hint=hint)
    elif able and size > 1 and axis not in able.parallel:
        able_to = ", ".join(able.parallel) or "nothing"
        message = f"{section} by {scene.name(section)} spreads over {able_to}, not over {axis}"
        yield conflict("unsupported-axis", message, path, f"{section}.{selector}")


CHECKS: tuple[Callable[[Scene], Conflicts], ...] = (
    batch_of_groups,
    group_size,
    updates,
    queue,
    weights_every,
    samplings,
    pool_sizes,
    axes,
    expert_axes,
    endpoint,
    placement,
    executor,
    units,
    lora,
    companions,
    optimizer,
    precision,
    trackers,
)
