"""The plugin that a simulated spec names: an executor whose workers are cost models."""

from __future__ import annotations

from attrs import field, frozen

from areal_core.contexts import ExecutorContext, WorkerSpec
from areal_core.workers.plans import TrainResult
from areal_plugins import ExecutorCapabilities, ExecutorDescriptor, hookimpl
from areal_plugins.simulate.costs import EngineCosts, Reach, TrainerCosts, UpdateCosts
from areal_plugins.simulate.hardware import Hardware
from areal_plugins.simulate.lengths import Lengths
from areal_plugins.simulate.shape import Shape
from areal_plugins.simulate.workers import EngineActor, Handle, RolloutActor, TrainerActor, Work


@frozen(kw_only=True)
class Scenario:
    """All that a simulated run does not take from its spec."""

    hardware: Hardware = field(metadata={"doc": "The devices."})
    shape: Shape = field(metadata={"doc": "The model."})
    reach: Reach = field(factory=Reach, metadata={"doc": "What share of their peaks the devices reach."})
    answers: Lengths = field(metadata={"doc": "Tokens of answers."})
    prompts: Lengths = field(metadata={"doc": "Tokens of prompts."})
    rewards: Lengths = field(factory=Lengths, metadata={"doc": "Seconds until an answer is judged."})
    longest: int = field(metadata={"doc": "Most tokens of an answer.", "ge": 1})
    grain: int = field(default=1, metadata={"doc": "Tokens that a unit of a trajectory stands for.", "ge": 1})
    trainers: int = field(metadata={"doc": "Devices that train.", "ge": 1})
    engines: int = field(metadata={"doc": "Engines.", "ge": 1})
    engine_devices: int = field(default=1, metadata={"doc": "Devices an engine.", "ge": 1})
    updates: int = field(default=1, metadata={"doc": "Optimizer updates a batch.", "ge": 1})
    forwards: int = field(default=0, metadata={"doc": "Passes without gradients before a step.", "ge": 0})
    recompute: bool = field(default=False, metadata={"doc": "Whether activations are made anew for the gradients."})
    disk: float | None = field(default=None, metadata={"doc": "Bytes a second of the disk that weights pass."})
    flushes: bool = field(default=False, metadata={"doc": "An update that waits also waits for an engine's queue."})

    def engine_costs(self) -> EngineCosts:
        """Of each engine."""
        return EngineCosts(self.hardware, self.shape, self.reach, self.engine_devices)

    def trainer_costs(self) -> TrainerCosts:
        """Of the whole trainer."""
        return TrainerCosts(
            self.hardware, self.shape, self.reach, self.trainers, self.updates, self.forwards, self.recompute
        )

    def update_costs(self) -> UpdateCosts:
        """Of a version's way."""
        return UpdateCosts(self.hardware, self.shape, self.reach, self.trainers, self.engines, self.disk)

    def work(self) -> Work:
        """What there is to do."""
        return Work(self.answers, self.prompts, self.rewards, self.grain, self.longest)


class SimulatedExecutor:
    """Starts actors; engines are found by their name."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._engines: dict[str, EngineActor] = {}
        self._trained: dict[int, TrainResult] = {}

    async def start(self, spec: WorkerSpec) -> Handle:
        """The role's actor."""
        scenario = self._scenario
        if spec.role == "engine":
            actor = EngineActor(scenario.engine_costs(), scenario.update_costs(), scenario.grain, scenario.flushes)
            self._engines[spec.name] = actor
            return Handle(spec, actor)
        if spec.role == "trainer":
            costs = scenario.trainer_costs()
            return Handle(spec, TrainerActor(costs, scenario.update_costs(), scenario.work(), self._trained))
        return Handle(spec, RolloutActor(scenario.work(), self._engines.__getitem__))

    async def close(self) -> None:
        """Nothing was started that needs an end."""


def make(options: Scenario, _context: ExecutorContext) -> SimulatedExecutor:
    """The factory."""
    return SimulatedExecutor(options)


@hookimpl
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    """Register `simulated`."""
    return (
        ExecutorDescriptor(
            name="simulated",
            summary="workers that take the time a cost model says",
            factory=f"{__name__}:make",
            options=Scenario,
            automatic=False,
            capabilities=ExecutorCapabilities(processes=True),
        ),
    )
