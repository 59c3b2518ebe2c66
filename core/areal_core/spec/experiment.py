"""A spec after resolution: every component found, its options structured, ready to be composed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from areal_core.descriptors import Component
from areal_core.spec.model import Spec


@frozen(repr=False, unsafe_hash=False)
class Selected:
    """A component that the spec selects: its descriptor and its options, an instance of `descriptor.options`."""

    descriptor: Any
    options: Any

    @property
    def name(self) -> str:
        return self.component.name

    @property
    def component(self) -> Component[Any]:
        assert isinstance(self.descriptor, Component)
        return self.descriptor


@frozen(repr=False, unsafe_hash=False)
class SelectedEnvironment:
    """An environment under its name in the run, with the reward the spec gives it, and the seconds they may take."""

    name: str
    weight: float
    environment: Selected
    reward: Selected | None
    rollout_timeout: float | None = None
    reward_timeout: float | None = None


@frozen(repr=False, unsafe_hash=False)
class Stage:
    """One stage, complete: the sections it runs under and the components they select."""

    name: str
    spec: Spec
    model: Selected
    platform: Selected
    engine: Selected
    trainer: Selected
    transport: Selected
    mechanism: str
    objective: Selected
    optimizer: Selected
    environments: tuple[SelectedEnvironment, ...]


@frozen(repr=False, unsafe_hash=False)
class Experiment:
    """What `run` composes. Stages share model, platform, engine, trainer, transport and executor.

    `files` are local plugin modules (absolute paths); `sources` the YAML files; `origins` says where
    each dotted key's value came from (`file:line`, `default`, `--set`, `env`); `resolved` is the
    spec as plain data, written to the run directory.
    """

    name: str
    seed: int
    stages: tuple[Stage, ...]
    executor: Selected
    trackers: tuple[Selected, ...]
    files: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(factory=dict)
    resolved: Mapping[str, Any] = field(factory=dict)
