"""A spec from its files to an experiment, or to everything that is wrong with it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from areal_core.descriptors import CheckContext
from areal_core.errors import Finding, Severity, SpecError
from areal_core.known_plugins import KNOWN
from areal_core.local import is_module
from areal_core.manager import Manager, PluginRecord, State
from areal_core.spec import paths
from areal_core.spec.catalog import Catalog
from areal_core.spec.choose import Choice, choose_platform, choose_transport, report_devices
from areal_core.spec.consistency import conflicts
from areal_core.spec.experiment import Experiment, Selected, SelectedEnvironment, Stage
from areal_core.spec.findings import Report, locate, tidy
from areal_core.spec.interpolate import interpolate
from areal_core.spec.load import Unreadable
from areal_core.spec.merge import Files, override
from areal_core.spec.model import CriticSpec, ReferenceSpec, Spec
from areal_core.spec.node import UNKNOWN, Node, SpecPath
from areal_core.spec.resolved import changes, origins, plain_spec
from areal_core.spec.scene import Scene
from areal_core.spec.sections import section_at
from areal_core.spec.stages import StageTree, refuse_fixed, refuse_idle_overrides, split
from areal_core.spec.structure import Part, Structured, structure
from areal_core.spec.tasks import environment_conflicts
from areal_core.spec.whole_run import run_conflicts


@frozen(repr=False, eq=False)
class Draft:
    """A stage as far as it could be resolved: its tree, its spec, and the parts it chose."""

    name: str
    tree: Node
    spec: Spec
    parts: Mapping[SpecPath, Part]
    structured: Structured


@frozen(repr=False, eq=False)
class Examined:
    """What is known of a spec: every finding, and the experiment when there is nothing missing for it."""

    findings: tuple[Finding, ...]
    experiment: Experiment | None = None
    drafts: tuple[Draft, ...] = ()
    platform: Choice | None = None
    transport: Choice | None = None
    sources: tuple[str, ...] = ()
    plugins: tuple[PluginRecord, ...] = ()
    origins: Mapping[str, str] = field(factory=dict)
    resolved: Mapping[str, Any] = field(factory=dict)

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.severity is Severity.ERROR)


def load_experiment(
    source: str | Path, overrides: Sequence[str] = (), manager: Manager | None = None, here: bool = True
) -> Experiment:
    """The experiment that the YAML file `source` describes, with `overrides` (`a.b=value`) on top.

    Without a `manager` plugins are discovered, those the spec names among them; a given one must
    know these already. With `here`, what this machine lacks is an error too.

    Raises:
        SpecError: all findings at once.
    """
    examined = examine(source, overrides, manager)
    if examined.experiment is None or examined.errors or (here and examined.findings):
        raise SpecError(examined.findings)
    return examined.experiment


def examine(source: str | Path, overrides: Sequence[str] = (), manager: Manager | None = None) -> Examined:
    """All that can be known about a spec without a device. Raises nothing for a bad spec."""
    report = Report()
    files = Files(report)
    try:
        tree = files.load(os.fspath(source))
    except Unreadable:
        return Examined(tuple(tidy(report.findings)), sources=tuple(files.names))
    for text in overrides:
        tree = override(tree, text, report)
    tree = interpolate(tree, report)
    lost = "plugins" in tree.value and tree.value["plugins"].value is UNKNOWN
    tree, plugins = _take_plugins(tree, report)
    base, stages = split(tree, report)
    refuse_idle_overrides(base, stages, report)
    manager = manager or Manager.discover([path for path, _ in plugins])
    _report_plugins(plugins, manager, report)
    examination = _Examination(manager, lost, tree, base, stages, [locate(f, tree) for f in report.findings])
    return examination.run(tuple(path for path, _ in plugins), tuple(files.names), tuple(overrides))


@frozen(repr=False, eq=False)
class _Examination:
    manager: Manager
    lost: bool
    tree: Node
    base: Node
    stages: list[StageTree]
    findings: list[Finding]

    def run(self, files: tuple[str, ...], sources: tuple[str, ...], overrides: tuple[str, ...]) -> Examined:
        catalog = Catalog(self.manager, Report(), self.lost)
        shared = structure(self.base, catalog)
        platform = choose_platform(shared, catalog)
        if platform and not _reaches_machines(shared):
            report_devices(platform, _devices_here(shared.spec), catalog)
        transport = choose_transport(shared, _platform_name(shared, platform), catalog)
        self._keep(catalog.report, self.base)
        drafts = tuple(self._draft(stage, shared, platform, transport) for stage in self.stages)
        self._check_run(drafts)
        plain = self._resolved(shared, drafts, files)
        where = origins(plain, self.tree, [draft.tree for draft in drafts])
        findings = tuple(tidy(self.findings))
        experiment = None
        if platform and transport and not any(f.severity is Severity.ERROR for f in findings):
            experiment = _compose(drafts, transport, files, sources, overrides, where, plain)
        return Examined(findings, experiment, drafts, platform, transport, sources, self.manager.plugins, where, plain)

    def _resolved(self, shared: Structured, drafts: tuple[Draft, ...], files: tuple[str, ...]) -> dict[str, Any]:
        plugins = {"plugins": list(files)} if files else {}
        if self.stages[0].overrides is None:
            return {**plain_spec(drafts[0].spec, drafts[0].parts), **plugins}
        chosen = {path: drafts[0].parts.get(path, part) for path, part in shared.parts.items() if _left_open(path)}
        base = plain_spec(shared.spec, {**shared.parts, **chosen})
        stages = [{"name": d.name, **changes(plain_spec(d.spec, d.parts), base)} for d in drafts]
        return {**base, **plugins, "stages": stages}

    def _keep(self, report: Report, tree: Node) -> None:
        self.findings.extend(locate(finding, tree) for finding in report.findings)

    def _draft(self, stage: StageTree, shared: Structured, platform: Choice | None, transport: Choice | None) -> Draft:
        report = Report()
        catalog = Catalog(self.manager, report, self.lost)
        structured = structure(stage.tree, catalog) if stage.overrides is not None else shared
        refuse_fixed(shared, structured, stage.name, report)
        parts = {**structured.parts, **{choice.part.path: choice.part for choice in (platform, transport) if choice}}
        spec = _completed(structured.spec, parts)
        scene = Scene(spec, parts, _axes(self.manager))
        for found in (*conflicts(scene), *environment_conflicts(scene)):
            if structured.trusted(*found.reads):
                report.findings.append(found.finding)
        _report_parts(scene, structured, catalog)
        self._keep(report, stage.tree)
        return Draft(stage.name, stage.tree, spec, parts, structured)

    def _check_run(self, drafts: Sequence[Draft]) -> None:
        """What the stages must hold together."""
        for index, found in run_conflicts([Scene(draft.spec, draft.parts) for draft in drafts]):
            if all(draft.structured.trusted(*found.reads) for draft in drafts):
                self.findings.append(locate(found.finding, drafts[index].tree))


def _left_open(path: SpecPath) -> bool:
    section = section_at(path)
    return section is not None and section.auto


def _completed(spec: Spec, parts: Mapping[SpecPath, Part]) -> Spec:
    """What the chosen objective implies: its critic and reference, and that demonstrations come one by one."""
    part = parts.get(("objective",))
    if part is None or part.descriptor is None:
        return spec
    needs, objective = part.descriptor.capabilities, spec.objective
    if needs.critic and objective.critic is None:
        objective = evolve(objective, critic=CriticSpec())
    if needs.reference and objective.reference is None:
        objective = evolve(objective, reference=ReferenceSpec())
    if needs.source == "demonstrate":
        objective = evolve(objective, group_size=1)
    return evolve(spec, objective=objective)


def _report_parts(scene: Scene, structured: Structured, catalog: Catalog) -> None:
    """What each chosen component lacks here, and what its own check finds."""
    platform = scene.part("platform")
    for part in scene.parts.values():
        if part.descriptor is None:
            continue
        where = (*part.path, "backend" if part.path == ("training",) else "type")
        catalog.requirements(part.descriptor, where)
        if platform is not None:
            _report_platform(part, platform, where, catalog.report)
        if part.descriptor.check and part.options is not None and structured.trusted(part.options_path):
            _report_check(part, scene.spec, catalog.report)


def _report_platform(part: Part, platform: Part, where: SpecPath, report: Report) -> None:
    only = part.descriptor.platforms
    if not only or platform.name == "auto" or platform.name in only:
        return
    message = f"{part.kind} {part.name} is for {', '.join(only)}, not for {platform.name}"
    tell = report.error if platform.written else report.unavailable
    tell("wrong-platform", message, where)


def _report_check(part: Part, spec: Spec, report: Report) -> None:
    try:
        report.findings.extend(part.descriptor.check(CheckContext(spec, part.options, part.options_path)))
    except Exception as error:  # a plugin's code
        message = f"the check of {part.kind}/{part.name} raised {type(error).__name__}: {error}"
        report.error("plugin-failed", message, part.path, "this is a fault of the plugin, not of the spec")


def _take_plugins(tree: Node, report: Report) -> tuple[Node, list[tuple[str, Node]]]:
    """The spec without `plugins`, and the files and modules it names; files are absolute."""
    node = tree.value.get("plugins")
    rest = tree.with_value({key: child for key, child in tree.value.items() if key != "plugins"})
    if node is None or node.value is UNKNOWN:
        return rest, []
    if not isinstance(node.value, list):
        hint = "write plugins: [./file.py]"
        report.error("bad-type", "plugins must be a list of files", ("plugins",), hint, node.location)
        return rest, []
    return rest, list(_plugin_files(node.value, report))


def _plugin_files(items: list[Node], report: Report) -> Iterator[tuple[str, Node]]:
    for index, item in enumerate(items):
        path: SpecPath = ("plugins", index)
        if not isinstance(item.value, str):
            if item.value is not UNKNOWN:
                report.error("bad-type", f"plugins.{index} must be a file or a module", path, location=item.location)
            continue
        file = paths.absolute(item.source.directory, item.value)
        if is_module(item.value):
            yield item.value, item
        elif paths.is_file(file):
            yield file, item
        else:
            hint = None if file == item.value else f"it would be {file}"
            report.error("no-such-file", f"there is no plugin file {item.value}", path, hint, item.location)


def _report_plugins(plugins: list[tuple[str, Node]], manager: Manager, report: Report) -> None:
    """A local plugin is named by the spec, so what is wrong with it is wrong with the spec."""
    broken = {p.entry: p for p in manager.plugins if p.state in (State.IMPORT_FAILED, State.API_MISMATCH)}
    for file, node in plugins:
        if plugin := broken.get(file):
            code = "import-failed" if plugin.state is State.IMPORT_FAILED else "api-mismatch"
            report.error(code, f"{node.value}: {plugin.cause}", hint=plugin.way_out, location=node.location)


def _axes(manager: Manager) -> frozenset[str]:
    """Every axis that someone can spread over, installed or not."""
    known = {"dp"} | {name for kind, name in KNOWN if kind == "parallelism"}
    known |= {r.descriptor.capabilities.axis for r in manager.components("parallelism")}
    for kind in ("trainer", "engine"):
        for registered in manager.components(kind):
            known |= set(registered.descriptor.capabilities.parallel)
    return frozenset(known)


def _reaches_machines(structured: Structured) -> bool:
    """Whether workers run where this machine's devices say nothing: the executor knows what its machines have."""
    executor = structured.part("executor").descriptor
    return executor is not None and executor.capabilities.nodes


def _devices_here(spec: Spec) -> int:
    """The devices that this machine must have."""
    pools = [-(-pool.devices // pool.nodes) for pool in (spec.resources.train, spec.resources.infer)]
    return sum(pools) if spec.placement == "disjoint" else max(pools)


def _platform_name(structured: Structured, choice: Choice | None) -> str:
    return choice.part.name if choice else structured.part("platform").name


def _compose(
    drafts: tuple[Draft, ...],
    transport: Choice,
    files: tuple[str, ...],
    sources: tuple[str, ...],
    overrides: tuple[str, ...],
    where: Mapping[str, str],
    plain: Mapping[str, Any],
) -> Experiment | None:
    """The experiment, when every part of every stage can be had."""
    if any(part.options is None for draft in drafts for part in draft.parts.values()):
        return None
    first = drafts[0]
    return Experiment(
        name=first.spec.name,
        seed=first.spec.seed,
        stages=tuple(_stage(draft, transport.mechanism) for draft in drafts),
        executor=_selected(first, "executor"),
        trackers=tuple(_selected(first, "trackers", index) for index in range(len(first.spec.trackers))),
        files=files,
        sources=sources,
        overrides=overrides,
        origins=where,
        resolved=plain,
    )


def _selected(draft: Draft, *path: str | int) -> Selected:
    part = draft.parts[path]
    return Selected(part.descriptor, part.options)


def _stage(draft: Draft, mechanism: str) -> Stage:
    return Stage(
        name=draft.name,
        spec=draft.spec,
        model=_selected(draft, "model"),
        platform=_selected(draft, "platform"),
        engine=_selected(draft, "inference"),
        trainer=_selected(draft, "training"),
        transport=_selected(draft, "weights"),
        mechanism=mechanism,
        objective=_selected(draft, "objective"),
        optimizer=_selected(draft, "training", "optimizer"),
        environments=tuple(_environment(draft, index) for index in range(len(draft.spec.environments))),
    )


def _environment(draft: Draft, index: int) -> SelectedEnvironment:
    environment = draft.spec.environments[index]
    reward = _selected(draft, "environments", index, "reward") if environment.reward is not None else None
    name = environment.name or environment.type
    return SelectedEnvironment(
        name,
        environment.weight,
        _selected(draft, "environments", index),
        reward,
        environment.rollout_timeout,
        environment.reward_timeout,
    )
