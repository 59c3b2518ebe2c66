"""A small world of components, so that a spec's meaning does not depend on what is installed."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Literal

import pytest
from attrs import field, frozen

from areal_core import descriptors as d
from areal_core.errors import Finding
from areal_core.manager import Manager, PluginRecord, State
from areal_core.spec import examine


@frozen
class HfOptions:
    path: str = field(metadata={"doc": "Directory or hub id.", "path": "maybe"})
    revision: str | None = field(default=None, metadata={"doc": "Branch."})


@frozen
class TinyOptions:
    hidden_size: int = field(default=64, metadata={"doc": "Width.", "ge": 2})
    architecture: Literal["qwen2", "llama"] = "qwen2"


@frozen
class Nested:
    depth: int = field(default=1, metadata={"ge": 1})
    names: tuple[str, ...] = ()


@frozen
class EngineOptions:
    kv_blocks: int = field(default=512, metadata={"doc": "Blocks.", "ge": 1})
    nested: Nested = field(factory=Nested)


@frozen
class JsonlOptions:
    path: str = field(metadata={"doc": "The file.", "path": True})
    fields: dict[str, str] = field(factory=dict)


@frozen
class GrpoOptions:
    clip: float = field(default=0.2, metadata={"gt": 0})
    kl: float = field(default=0.0, metadata={"ge": 0})


@frozen
class AdamwOptions:
    weight_decay: float = field(default=0.01, metadata={"ge": 0})
    betas: tuple[float, float] = (0.9, 0.95)


@frozen
class MathOptions:
    timeout: float = field(default=5.0, metadata={"gt": 0})


class FakePlatform:
    def __init__(self, devices: int, lack: str | None = None) -> None:
        self._devices, self._lack = devices, lack

    def count(self) -> int:
        return self._devices

    def missing(self) -> str | None:
        return self._lack


FACTORIES = ModuleType("areal_spec_fakes")
FACTORIES.cpu = lambda options, context: FakePlatform(2)
FACTORIES.absent = lambda options, context: FakePlatform(0, "no driver")
FACTORIES.eight = lambda options, context: FakePlatform(8)
FACTORIES.make = lambda options, context: None
sys.modules["areal_spec_fakes"] = FACTORIES


def component(cls: type, name: str, *, factory: str = "make", **more):
    """A descriptor of a fake."""
    return cls(name=name, summary=f"a {cls.kind}", factory=f"areal_spec_fakes:{factory}", **more)


def kl_needs_reference(context: d.CheckContext):
    if context.options.kl > 0 and context.spec.objective.reference is None:
        yield Finding("kl-without-reference", "kl needs a reference", (*context.path, "kl"), "add `reference: {}`")


WORLD = (
    component(d.PlatformDescriptor, "cpu", factory="cpu", capabilities=d.PlatformCapabilities(priority=0)),
    component(
        d.PlatformDescriptor,
        "cuda",
        factory="absent",
        capabilities=d.PlatformCapabilities(device="cuda", priority=10),
    ),
    component(d.ModelDescriptor, "hf", options=HfOptions),
    component(d.ModelDescriptor, "tiny", options=TinyOptions),
    component(
        d.EngineDescriptor,
        "torch",
        options=EngineOptions,
        capabilities=d.EngineCapabilities(accepts=("tensors", "hf-dir"), interruptible=True),
    ),
    component(d.EngineDescriptor, "stranger", capabilities=d.EngineCapabilities(accepts=("process-group",))),
    component(
        d.TrainerDescriptor,
        "torch",
        capabilities=d.TrainerCapabilities(lora=True, reference=True, critic=True, parallel=("dp", "tp")),
    ),
    component(d.TrainerDescriptor, "plain"),
    component(d.TransportDescriptor, "memory", capabilities=d.TransportCapabilities(scope="process")),
    component(d.TransportDescriptor, "shm", capabilities=d.TransportCapabilities(offers=("tensors", "shm-handle"))),
    component(d.TransportDescriptor, "disk", capabilities=d.TransportCapabilities(offers=("hf-dir",))),
    component(d.TransportDescriptor, "net", capabilities=d.TransportCapabilities(scope="network", collective=True)),
    component(d.EnvironmentDescriptor, "jsonl", options=JsonlOptions),
    component(
        d.EnvironmentDescriptor,
        "gsm8k",
        capabilities=d.EnvironmentCapabilities(scores=True, demonstrations=True),
    ),
    component(d.EnvironmentDescriptor, "steps", capabilities=d.EnvironmentCapabilities(scores=True, unit="step")),
    component(d.RewardDescriptor, "math", options=MathOptions),
    component(
        d.ObjectiveDescriptor,
        "grpo",
        options=GrpoOptions,
        check=kl_needs_reference,
        capabilities=d.ObjectiveCapabilities(min_group_size=2),
    ),
    component(d.ObjectiveDescriptor, "sft", capabilities=d.ObjectiveCapabilities(source="demonstrate")),
    component(d.ObjectiveDescriptor, "ppo", capabilities=d.ObjectiveCapabilities(critic=True)),
    component(d.OptimizerDescriptor, "adamw", options=AdamwOptions),
    component(d.OptimizerDescriptor, "sparse", capabilities=d.OptimizerCapabilities(backends=("plain",))),
    component(d.ExecutorDescriptor, "local"),
    component(d.ExecutorDescriptor, "inline", capabilities=d.ExecutorCapabilities(processes=False)),
    component(d.ExecutorDescriptor, "cluster", capabilities=d.ExecutorCapabilities(nodes=True)),
    component(d.TrackerDescriptor, "jsonl"),
    component(d.TrackerDescriptor, "tensorboard"),
)


def manager_of(*components) -> Manager:
    return Manager([PluginRecord("fakes", State.READY, "areal-plugins", "0", components=components)])


@pytest.fixture(scope="session")
def manager() -> Manager:
    return manager_of(*WORLD)


@pytest.fixture
def extended():
    """A manager that also has these components."""
    return lambda *components: manager_of(*WORLD, *components)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write `text` as `name` in the current directory."""
    monkeypatch.chdir(tmp_path)

    def to_file(text: str, name: str = "spec.yaml") -> str:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        return name

    return to_file


@pytest.fixture
def check(write, manager):
    """Examine `text` with overrides."""

    def examined(text: str, *overrides: str, manager: Manager = manager):
        return examine(write(text), overrides, manager)

    return examined


@pytest.fixture
def errors(check):
    """`code at line:column` of each error of a spec, in order."""

    def of(text: str, *overrides: str, **more) -> list[str]:
        found = check(text, *overrides, **more).errors
        return [f"{f.code} at {f.location.line}:{f.location.column}" for f in found]

    return of


COMPLETE = """\
name: complete
model: {type: tiny}
environments:
  - {type: gsm8k}
"""


@pytest.fixture
def complete() -> str:
    """A spec that lacks nothing."""
    return COMPLETE


@pytest.fixture
def build(check):
    """The experiment of a complete spec with `text` added."""

    def experiment(text: str = "", *overrides: str, **more):
        examined = check(COMPLETE + text, *overrides, **more)
        assert not examined.findings, examined.findings
        return examined.experiment

    return experiment
