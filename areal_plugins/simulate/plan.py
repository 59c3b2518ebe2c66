"""From a spec to the simulated run of it: the same sizes and rules, with cost models for workers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from attrs import asdict, evolve, frozen

from areal_core.errors import InputError
from areal_core.pipeline import layout
from areal_core.pipeline.clock import VirtualLoop
from areal_core.pipeline.compose import compose
from areal_core.pipeline.controller import Controller
from areal_core.pipeline.events import Event
from areal_core.pipeline.run import EvaluationReport, StepReport
from areal_core.spec import load_experiment
from areal_core.spec.resolve import Draft
from areal_plugins.simulate.components import Scenario
from areal_plugins.simulate.costs import Reach
from areal_plugins.simulate.hardware import Hardware
from areal_plugins.simulate.lengths import Lengths, tokens
from areal_plugins.simulate.shape import Shape

UNITS = 64
"""Units of the longest trajectories: enough to see which version drew what share of one."""

GROUPS_A_ROLLOUT = 256
"""Rollout workers in a simulation take no time of their own; there is one for so many groups of a batch."""


@frozen(kw_only=True)
class Job:
    """What is simulated, all of it: a cluster and its use, the work, and the rules of the pipeline.

    `trainers` and `engine_devices * engines` are devices; `batch_size` is in trajectories. Not `interruptible`, an
    update waits for what an engine is drawing, and with `flushes` for what it was asked for and has not begun.
    """

    hardware: Hardware
    shape: Shape
    answers: Lengths
    prompts: Lengths = Lengths("fixed", 256)
    rewards: Lengths = Lengths()
    reach: Reach = Reach()
    trainers: int
    engines: int
    engine_devices: int = 1
    max_concurrent: int = 64
    batch_size: int
    group_size: int = 8
    longest: int
    max_staleness: int = 4
    publish_every: int = 1
    interruptible: bool = True
    flushes: bool = False
    on_stale: str = "wait"
    queue_size: int | str = "auto"
    updates: int = 1
    forwards: int = 0
    recompute: bool = False
    disk: float | None = None
    seed: int = 0

    @property
    def devices(self) -> int:
        """Of both pools."""
        return self.trainers + self.engines * self.engine_devices

    def split(self, engines: int) -> Job:
        """The same devices, used otherwise."""
        return evolve(self, engines=engines, trainers=self.devices - engines * self.engine_devices)

    def scenario(self) -> Scenario:
        """What the cost models are told."""
        return Scenario(
            hardware=self.hardware,
            shape=self.shape,
            reach=self.reach,
            answers=self.answers,
            prompts=self.prompts,
            rewards=self.rewards,
            longest=self.longest,
            grain=-(-tokens(self.answers.at(0.999), self.longest) // UNITS),
            trainers=self.trainers,
            engines=self.engines,
            engine_devices=self.engine_devices,
            updates=self.updates,
            forwards=self.forwards,
            recompute=self.recompute,
            disk=self.disk,
            flushes=self.flushes,
        )


def job_of(draft: Draft, hardware: Hardware, shape: Shape, answers: Lengths) -> Job:
    """What the spec asks for.

    Raises:
        InputError: its stage generates nothing, or the pools share devices.

    """
    spec = draft.spec
    if spec.placement == "colocated":
        problem = "pools that share devices take turns, which is not simulated"
        raise InputError("placement", problem, "simulate it with --set placement=disjoint")
    part = draft.parts.get(("objective",))
    if part is not None and part.descriptor is not None and part.descriptor.capabilities.source == "demonstrate":
        problem = f"{part.name} generates nothing, so there is no pace to simulate"
        raise InputError("objective", problem, "give a spec whose last stage generates")
    objective, pipeline = spec.objective, spec.pipeline
    decoupled = pipeline.max_staleness > 0 or spec.training.updates > 1
    each = layout.split(spec.resources.infer)
    return Job(
        hardware=hardware,
        shape=shape,
        answers=answers,
        trainers=spec.resources.train.devices,
        engines=layout.axes(spec.resources.infer)["dp"],
        engine_devices=each,
        max_concurrent=spec.inference.max_concurrent,
        batch_size=spec.training.batch_size,
        group_size=objective.group_size,
        longest=spec.inference.sampling.max_new_tokens,
        max_staleness=pipeline.max_staleness,
        publish_every=spec.weights.every,
        interruptible=pipeline.interruptible,
        on_stale=pipeline.on_stale,
        queue_size=pipeline.queue_size,
        updates=spec.training.updates,
        forwards=int(decoupled) + int(objective.reference is not None),
        recompute=spec.training.activation_checkpointing,
        disk=DISK if spec.weights.type == "disk" else None,
        seed=spec.seed,
    )


DISK = 2e9
"""Bytes a second of a disk that weights pass: one NVMe drive, or a good network share."""


def simulated_spec(job: Job, steps: int) -> dict[str, Any]:
    """The spec of the simulated run. Its engines are of one device: their costs know how many they have."""
    groups = job.batch_size // job.group_size
    return {
        "name": "simulated",
        "seed": job.seed,
        "plugins": ["areal_plugins.simulate.components", "areal_plugins.testing.mocks"],
        "model": "mock",
        "platform": {"type": "mock", "mock": {"devices": job.trainers + job.engines}},
        "executor": {"type": "simulated", "simulated": asdict(job.scenario())},
        "resources": {
            "train": {"num_gpus": job.trainers, "parallel": "dp"},
            "infer": {"num_gpus": job.engines, "parallel": "dp"},
            "rollout": {"cpus": 1 + groups // GROUPS_A_ROLLOUT},
        },
        "inference": {
            "type": "mock",
            "max_concurrent": job.max_concurrent,
            "sampling": {"max_new_tokens": job.longest},
        },
        "training": {
            "backend": "mock", "batch_size": job.batch_size, "max_steps": steps, "updates": job.updates,
            "optimizer": "mock",
        },
        "weights": {"type": "mock", "every": job.publish_every},
        "objective": {"type": "mock", "group_size": job.group_size},
        "environments": [{"name": "simulated", "type": "mock"}],
        "pipeline": {
            "max_staleness": job.max_staleness, "on_stale": job.on_stale, "interruptible": job.interruptible,
            "queue_size": job.queue_size,
        },
        "evaluation": {"before": False, "after": False},
        "trackers": [],
    }  # fmt: skip


def run(job: Job, steps: int, folder: Path, after: int = 0) -> Path:
    """Run the first `steps` of `steps + after` steps of `job`; the run directory, which is made in `folder`.

    Towards its end a run admits less and less, which those steps `after` keep out of the ones that are run.

    Raises:
        InputError: the model does not fit the engines' devices, or a batch holds no whole groups.
        RunFailed: the run did not end.

    """
    _check(job)
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "simulated.yaml"
    source.write_text(json.dumps(simulated_spec(job, steps + after)), encoding="utf-8")
    experiment = load_experiment(str(source))
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(_controlled(experiment, folder / "run", steps if after else None))
    return folder / "run"


async def _controlled(experiment: Any, folder: Path, last: int | None) -> None:
    """Run it, up to the step `last` if that is given: what is under way then ends with the loop."""
    enough = asyncio.Event()
    run = asyncio.ensure_future(Controller(compose(experiment, folder, debug=True), Silent(last, enough)).run())
    reached = asyncio.ensure_future(enough.wait())
    await asyncio.wait([run, reached], return_when=asyncio.FIRST_COMPLETED)
    if run.done():
        run.result()


def _check(job: Job) -> None:
    costs = job.scenario().engine_costs()
    longest = job.longest + tokens(job.prompts.at(0.999))
    if costs.capacity < longest:
        have = f"{job.engine_devices} x {job.hardware.name}"
        problem = f"weights and one answer of {longest:,} tokens do not fit in {have}"
        raise InputError("resources.infer", problem, "spread an engine over more devices with parallel: {tp: N}")
    if job.trainers < 1 or job.engines < 1:
        raise InputError("--devices", f"{job.devices} leave a pool without any", "each pool needs one device")


class Silent:
    """A watcher that keeps nothing, and says when the step `last` is done."""

    def __init__(self, last: int | None = None, done: asyncio.Event | None = None) -> None:
        self._last, self._done = last, done

    def phase(self, text: str) -> None: ...

    def stepped(self, report: StepReport) -> None:
        if self._done is not None and report.step == self._last:
            self._done.set()

    def evaluated(self, report: EvaluationReport) -> None: ...

    def happened(self, event: Event) -> None: ...
