"""`areal-plugins plugins`: what is installed, in which state, and what each component takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

import attrs

from areal_core.descriptors import KINDS, Component
from areal_core.errors import PluginError
from areal_core.manager import Manager, PluginRecord, Registered, State
from areal_core.requirements import pip_line, unmet_requirements
from areal_plugins.cli import dumped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`plugins [list|show NAME|check NAME] [--json]`."""
    commands = parser.add_subparsers(dest="action", metavar="list|show|check")
    listing = commands.add_parser("list", help="every plugin, its state and its components")
    show = commands.add_parser("show", help="one component or plugin: options, capabilities, origin")
    show.add_argument("name", help="a component (`torch`, or `engine/torch` to be exact) or a plugin")
    check = commands.add_parser("check", help="prove that a component, or all of a plugin's, keeps its protocol")
    check.add_argument("name", help="a component (`engine/torch`), or a plugin for all of its components")
    check.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the component, read as YAML"
    )
    for command in (listing, show, check):
        command.add_argument("--json", action="store_true", help="machine-readable output")
        command.add_argument("--plugin", action="append", default=[], metavar="FILE", help="also load this plugin file")
    parser.set_defaults(action="list", json=False, plugin=[])


def main(args: argparse.Namespace) -> int:
    """Print; exit code 2 when nothing has the name, 1 when `check` finds a rule that is broken, 0 else."""
    manager = Manager.discover(args.plugin)
    if args.action == "check":
        from areal_plugins.cli import conform  # brings the conformance kit

        return conform.main(manager, args)
    if args.action == "show":
        return _show(manager, args.name, args.json)
    print(dumped(_inventory(manager)) if args.json else "\n".join(_listing(manager)))
    return 0


def _inventory(manager: Manager) -> dict[str, Any]:
    return {
        "plugins": [_plugin_data(plugin) for plugin in manager.plugins],
        "components": [_component_data(entry) for entry in manager.components()],
        "conflicts": manager.conflicts,
    }


def _plugin_data(plugin: PluginRecord) -> dict[str, Any]:
    return {
        "name": plugin.name,
        "state": plugin.state.value,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "entry": plugin.entry,
        "cause": plugin.cause,
        "way_out": plugin.way_out,
        "warnings": list(plugin.warnings),
        "components": [f"{component.kind}/{component.name}" for component in plugin.components],
    }


def _component_data(entry: Registered) -> dict[str, Any]:
    descriptor = entry.descriptor
    unmet = unmet_requirements(descriptor.requires)
    return {
        "kind": descriptor.kind,
        "name": descriptor.name,
        "summary": descriptor.summary,
        "plugin": entry.plugin.name,
        "distribution": entry.plugin.distribution,
        "version": entry.plugin.version,
        "state": (State.NOT_INSTALLED if unmet else State.READY).value,
        "cause": "; ".join(unmet),
        "way_out": pip_line(descriptor.requires) if unmet else "",
        "api_version": descriptor.api_version,
        "requires": list(descriptor.requires),
        "platforms": list(descriptor.platforms),
        "capabilities": attrs.asdict(descriptor.capabilities),
        "options": list(_options(descriptor)),
    }


def _options(descriptor: Component[Any]) -> Iterable[dict[str, Any]]:
    attrs.resolve_types(descriptor.options)
    for option in attrs.fields(descriptor.options):
        yield {
            "name": option.name,
            "type": _type_name(option.type),
            "default": _default(option.default),
            "required": option.default is attrs.NOTHING,
            "doc": option.metadata.get("doc", ""),
        }


def _type_name(annotation: Any) -> str:
    return annotation.__name__ if type(annotation) is type else str(annotation).replace("typing.", "")


def _default(value: Any) -> Any:
    if value is attrs.NOTHING:
        return None
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        value = value.factory()
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _listing(manager: Manager) -> Iterable[str]:
    for plugin in manager.plugins:
        yield f"{plugin.name}  {plugin.origin}  {plugin.state.value}" + (f": {plugin.cause}" if plugin.cause else "")
        if plugin.way_out:
            yield f"  -> {plugin.way_out}"
        yield from (f"  warning: {warning}" for warning in plugin.warnings)
    yield from (f"error: {conflict}" for conflict in manager.conflicts)
    for kind in KINDS:
        entries = manager.components(kind)
        if entries:
            yield ""
            yield kind
            yield from _rows(entries)


def _rows(entries: Iterable[Registered]) -> Iterable[str]:
    for entry in entries:
        descriptor = entry.descriptor
        lack = unmet_requirements(descriptor.requires)
        state = f"  [{State.NOT_INSTALLED.value}: {'; '.join(lack)}; {pip_line(descriptor.requires)}]" if lack else ""
        yield f"  {descriptor.name:<16} {descriptor.summary}{state}"


def _show(manager: Manager, name: str, as_json: bool) -> int:
    plugins = [plugin for plugin in manager.plugins if plugin.name == name]
    wanted = [
        e for e in manager.components() if name in (e.descriptor.name, f"{e.descriptor.kind}/{e.descriptor.name}")
    ]
    if not plugins and not wanted:
        raise _unknown(manager, name)
    if as_json:
        data = {"plugins": [_plugin_data(p) for p in plugins], "components": [_component_data(e) for e in wanted]}
        print(dumped(data))
        return 0
    blocks = [*(_plugin_text(plugin) for plugin in plugins), *(_component_text(entry) for entry in wanted)]
    print("\n\n".join(blocks))
    return 0


def _address(entry: Registered) -> str:
    return f"{entry.descriptor.kind}/{entry.descriptor.name}"


def _unknown(manager: Manager, name: str) -> PluginError:
    kind, _, bare = name.rpartition("/")
    for of in [kind] if kind in KINDS else list(KINDS):
        missing = manager.missing(of, bare)
        if missing.state is not None:
            return PluginError(name, missing.message, missing.way_out)
    kinds = [kind] if kind in KINDS else list(KINDS)
    near = [hint for of in kinds if (hint := manager.suggestion(of, bare)).startswith("did you mean")]
    return PluginError(
        name, "no component or plugin has this name", near[0] if near else "see areal-plugins plugins list"
    )


def _plugin_text(plugin: PluginRecord) -> str:
    lines = [
        f"plugin {plugin.name}",
        f"  from        {plugin.origin} ({plugin.entry})",
        f"  state       {plugin.state.value}",
    ]
    lines += [f"  cause       {plugin.cause}"] if plugin.cause else []
    lines += [f"  way out     {plugin.way_out}"] if plugin.way_out else []
    lines += [f"  component   {component.kind}/{component.name}" for component in plugin.components]
    return "\n".join(lines)


def _component_text(entry: Registered) -> str:
    data = _component_data(entry)
    lines = [f"{data['kind']}/{data['name']}: {data['summary']}", f"  from          {entry.plugin.origin}"]
    lines.append(
        f"  state         {data['state']}" + (f": {data['cause']} -> {data['way_out']}" if data["cause"] else "")
    )
    lines.append(f"  API version   {data['api_version']}")
    lines += [f"  requires      {', '.join(data['requires'])}"] if data["requires"] else []
    lines.append(f"  platforms     {', '.join(data['platforms']) or 'any'}")
    lines += [f"  {name:<13} {value}" for name, value in data["capabilities"].items()]
    lines.append("  options" if data["options"] else "  no options")
    for option in data["options"]:
        default = "required" if option["required"] else f"default {option['default']}"
        lines.append(f"    {option['name']}: {option['type']} ({default})  {option['doc']}")
    return "\n".join(lines)
