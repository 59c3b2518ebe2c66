"""`areal-plugins plugins show NAME`: all that is known of a plugin or a component."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from areal_core.descriptors import KINDS
from areal_core.errors import PluginError
from areal_core.manager import Manager, PluginRecord, Registered
from areal_plugins.cli import dumped
from areal_plugins.cli.inventory import BOUNDS, component_data, plugin_data


def show(manager: Manager, name: str, as_json: bool) -> str:
    """The plugins and components that `name` or `kind/name` means.

    Raises:
        PluginError: there is none, with the nearest name; or with what to install, where that is known.
    """
    plugins = [plugin for plugin in manager.plugins if plugin.name == name]
    found = [e for e in manager.components() if name in (e.descriptor.name, address(e))]
    if not plugins and not found:
        raise _unknown(manager, name)
    if as_json:
        return dumped({"plugins": list(map(plugin_data, plugins)), "components": list(map(component_data, found))})
    blocks = [*map(_plugin, plugins), *(_component(manager, entry) for entry in found)]
    return "\n\n".join("\n".join(block) for block in blocks)


def address(entry: Registered) -> str:
    """`kind/name`."""
    return f"{entry.descriptor.kind}/{entry.descriptor.name}"


def _unknown(manager: Manager, name: str) -> PluginError:
    kind, _, bare = name.rpartition("/")
    kinds = [kind] if kind in KINDS else list(KINDS)
    for of in kinds:
        missing = manager.missing(of, bare)
        if missing.state is not None:
            return PluginError(name, missing.message, missing.way_out)
    hints = [manager.suggestion(of, bare) for of in kinds]
    near = [hint for hint in hints if hint.startswith("did you mean")]
    problem = "no component or plugin has this name"
    return PluginError(name, problem, near[0] if near else "see areal-plugins plugins list")


def _plugin(plugin: PluginRecord) -> Iterator[str]:
    yield f"plugin {plugin.name}"
    yield from _row("from", f"{plugin.origin} ({plugin.entry})")
    yield from _row("state", plugin.state.value)
    yield from _row("cause", plugin.cause)
    yield from _row("way out", plugin.way_out)
    for warning in plugin.warnings:
        yield from _row("warning", warning)
    for component in plugin.components:
        yield from _row("component", f"{component.kind}/{component.name}")


def _component(manager: Manager, entry: Registered) -> Iterator[str]:
    data, plugin = component_data(entry), entry.plugin
    yield f"{address(entry)}: {data['summary']}"
    yield from _row("from", f"{plugin.origin} (plugin {plugin.name})")
    yield from _row("state", data["state"])
    yield from _row("cause", data["cause"])
    yield from _row("way out", data["way_out"])
    for conflict in manager.conflicts:
        yield from _row("conflict", conflict if conflict.startswith(f"{address(entry)}: ") else "")
    yield from _row("API version", str(data["api_version"]))
    yield from _row("requires", ", ".join(data["requires"]) or "nothing more")
    yield from _row("platforms", ", ".join(data["platforms"]) or "any")
    yield "  capabilities" if data["capabilities"] else "  no capabilities"
    yield from (f"    {name}: {_value(value)}" for name, value in data["capabilities"].items())
    yield "  options" if data["options"] else "  no options"
    yield from (line for option in data["options"] for line in _option(option))


def _option(option: dict[str, Any]) -> Iterable[str]:
    bounds = [f"{BOUNDS[key]} {value:g}" for key, value in option["bounds"].items()]
    default = "required" if option["required"] else f"default {_value(option['default'])}"
    yield f"    {option['name']}: {', '.join([option['type'], *bounds])} ({default})"
    yield f"      {option['doc']}"


def _value(value: Any) -> str:
    """As YAML's flow style writes it."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_value(each)}' for key, each in value.items())}}}"
    return value if isinstance(value, str) and value.isprintable() and value.strip() else json.dumps(value)


def _row(name: str, value: str) -> Iterable[str]:
    return [f"  {name:<13} {value}"] if value else []
