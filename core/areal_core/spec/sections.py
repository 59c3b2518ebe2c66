"""Where in a spec components are chosen, and by which key."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from attrs import NOTHING, fields, frozen

from areal_core.spec.model import (
    EnvironmentSpec,
    ExecutorSpec,
    InferenceSpec,
    ModelSpec,
    ObjectiveSpec,
    OptimizerSpec,
    PlatformSpec,
    TrainingSpec,
    Use,
    WeightsSpec,
)
from areal_core.spec.node import Node, SpecPath

PRIVATE = ("options", "blocks")
"""Fields of a section that hold private options; not keys of the spec."""

AUTO = "auto"
"""The name that leaves the choice of a platform or transport to what fits."""


@frozen(slots=False, repr=False, eq=False)
class Section:
    """A part of the spec that names a component of `kind` under the key `selector`.

    With `blocks`, its private options stand in blocks named after components; else inline.
    """

    kind: str
    cls: type[Any]
    selector: str = "type"
    blocks: bool = False
    auto: bool = False

    @cached_property
    def common(self) -> tuple[str, ...]:
        """The keys that every component of the kind has."""
        return tuple(f.name for f in fields(self.cls) if f.name not in PRIVATE)

    @cached_property
    def default(self) -> str | None:
        """The component when the section names none."""
        default = getattr(fields(self.cls), self.selector).default
        return None if default is NOTHING else str(default)


SECTIONS: dict[tuple[str, ...], Section] = {
    ("model",): Section("model", ModelSpec),
    ("platform",): Section("platform", PlatformSpec, blocks=True, auto=True),
    ("executor",): Section("executor", ExecutorSpec, blocks=True),
    ("inference",): Section("engine", InferenceSpec, blocks=True),
    ("training",): Section("trainer", TrainingSpec, selector="backend", blocks=True),
    ("training", "optimizer"): Section("optimizer", OptimizerSpec),
    ("weights",): Section("transport", WeightsSpec, blocks=True, auto=True),
    ("objective",): Section("objective", ObjectiveSpec),
    ("environments", "*"): Section("environment", EnvironmentSpec),
    ("environments", "*", "reward"): Section("reward", Use),
    ("trackers", "*"): Section("tracker", Use),
}


def section_at(path: SpecPath) -> Section | None:
    """The section that `path` leads to, inside a stage or out of it."""
    if path[:1] == ("stages",):
        path = path[2:]
    return SECTIONS.get(tuple("*" if isinstance(part, int) else part for part in path))


def spelled_out(node: Node, section: Section) -> Node:
    """A bare name as the mapping it is short for."""
    if not isinstance(node.value, str):
        return node
    return node.with_value({section.selector: Node(node.value, node.source, node.span, node.key, origin=node.origin)})


def chosen(node: Node, section: Section) -> Any:
    """The name that the section's mapping chooses."""
    selector = node.value.get(section.selector)
    return section.default if selector is None else selector.value


def without_private(node: Node, section: Section) -> Node:
    """The mapping without what only the old component understands."""
    if section.blocks:
        return node
    return node.with_value({key: child for key, child in node.value.items() if key in section.common})
