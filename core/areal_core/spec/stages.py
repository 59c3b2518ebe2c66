"""Stages: parts of one run, each with its own version of the sections above."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import fields, frozen

from areal_core.spec.findings import Report
from areal_core.spec.forms import hints
from areal_core.spec.merge import merge
from areal_core.spec.model import Spec
from areal_core.spec.node import UNKNOWN, Node, SpecPath, leaves
from areal_core.spec.structure import Structured

SINGLE = "main"
"""The name of the stage of a spec that has none."""

VARIES: dict[SpecPath, tuple[str, ...]] = {
    ("training",): (
        "batch_size",
        "learning_rate",
        "max_steps",
        "updates",
        "optimizer",
        "grad_clip",
        "on_nonfinite",
        "grad_guard",
        "lag_decay",
    ),
    ("inference",): ("sampling",),
    ("pipeline",): ("max_staleness", "on_stale", "queue_size"),
    ("objective",): (),
    ("environments",): (),
    ("evaluation",): (),
}
"""What a stage may change: these keys of a section, or all of it. Workers keep the rest from start to end."""


@frozen(repr=False, eq=False)
class StageTree:
    """A stage by name: its overrides as written (None: the spec has no stages), and what it runs under."""

    name: str
    overrides: Node | None
    tree: Node


def split(tree: Node, report: Report) -> tuple[Node, list[StageTree]]:
    """The spec without its stages, and each stage merged over it."""
    stages = tree.value.get("stages", Node([], tree.source))
    base = tree.with_value({key: child for key, child in tree.value.items() if key != "stages"})
    found: list[StageTree] = []
    if isinstance(stages.value, list):
        found = list(_stages(base, stages.value, report))
    elif stages.value is not UNKNOWN:
        report.error("bad-type", "stages must be a list", ("stages",), location=stages.location)
    return base, found or [StageTree(SINGLE, None, base)]


def _stages(base: Node, items: list[Node], report: Report) -> Iterator[StageTree]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        if not isinstance(item.value, dict):
            hint = "write `- {name: ..., objective: ...}`"
            report.error("bad-type", "a stage must be a mapping", ("stages", index), hint, item.location)
            continue
        name = _name(item, index, report)
        if name in seen:
            place = item.value["name"].location
            report.error("duplicate-name", f"two stages are called {name}", ("stages", index), location=place)
        seen.add(name)
        overrides = item.with_value({key: child for key, child in item.value.items() if key != "name"})
        yield StageTree(name, overrides, merge(base, overrides))


def _name(item: Node, index: int, report: Report) -> str:
    node = item.value.get("name")
    if node is not None and isinstance(node.value, str) and node.value:
        return node.value
    path: SpecPath = ("stages", index, "name")
    if node is None:
        report.error("missing-key", f"stages.{index}.name is missing", path, "give the stage a name", item.location)
    elif node.value is not UNKNOWN:
        report.error("bad-type", f"stages.{index}.name must be a text", path, location=node.location)
    return f"stage {index}"


def refuse_fixed(base: Structured, stage: Structured, name: str, report: Report) -> None:
    """Report what `stage` changes although it stays for the whole run."""
    for path in _fixed():
        if _get(base.spec, path) != _get(stage.spec, path) and stage.trusted(path) and base.trusted(path):
            message = f"stage {name} changes {'.'.join(map(str, path))}, which stays for the whole run"
            report.error("fixed-in-stages", message, path, "set it once, above the stages")


def refuse_idle_overrides(tree: Node, stages: list[StageTree], report: Report) -> None:
    """Report each `--set` that no stage runs under, because all of them set the value themselves."""
    used = {id(node) for stage in stages for _, node in leaves(stage.tree)}
    for path, node in leaves(tree):
        if node.source.kind != "--set" or path[0] == "stages" or id(node) in used:
            continue
        dotted = ".".join(map(str, path))
        hint = f"use --set stages.{stages[0].name}.{dotted}=..."
        report.error("no-effect", f"every stage sets {dotted} itself", path, hint, node.key_location)


def _fixed() -> Iterator[SpecPath]:
    for section in fields(Spec):
        path: SpecPath = (section.name,)
        if path not in VARIES:
            yield path
        elif keys := VARIES[path]:
            cls = hints(Spec)[section.name]
            yield from ((section.name, f.name) for f in fields(cls) if f.name not in keys)


def _get(spec: Spec, path: SpecPath) -> object:
    found: object = spec
    for part in path:
        found = getattr(found, str(part))
    return found
