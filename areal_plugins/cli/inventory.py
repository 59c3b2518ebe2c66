"""Plugins, components and options as plain data, for people's eyes and for `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

import attrs

from areal_core.descriptors import Component
from areal_core.errors import PluginError
from areal_core.manager import Manager, PluginRecord, Registered, State
from areal_core.requirements import pip_line, unmet_requirements

BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
"""How an option's metadata bounds its value, in words."""


def inventory(manager: Manager) -> dict[str, Any]:
    """All there is."""
    return {
        "plugins": [plugin_data(plugin) for plugin in manager.plugins],
        "components": [component_data(entry) for entry in manager.components()],
        "conflicts": manager.conflicts,
    }


def plugin_data(plugin: PluginRecord) -> dict[str, Any]:
    """A plugin as found: its state, why, and what to do."""
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


def component_data(entry: Registered) -> dict[str, Any]:
    """A component, whose state is that of its own requirements, and of its options where they are imported by name."""
    descriptor = entry.descriptor
    unmet = unmet_requirements(descriptor.requires)
    state, cause = (State.NOT_INSTALLED if unmet else State.READY), "; ".join(unmet)
    way_out = pip_line(descriptor.requires) if unmet else ""
    try:
        options = list(options_data(descriptor))
    except PluginError as error:  # it is this component's fault, and no other's
        options, state, cause, way_out = [], State.IMPORT_FAILED, error.problem, error.way_out
    return {
        "kind": descriptor.kind,
        "name": descriptor.name,
        "summary": descriptor.summary,
        "plugin": entry.plugin.name,
        "distribution": entry.plugin.distribution,
        "version": entry.plugin.version,
        "state": state.value,
        "cause": cause,
        "way_out": way_out,
        "api_version": descriptor.api_version,
        "requires": list(descriptor.requires),
        "platforms": list(descriptor.platforms),
        "capabilities": attrs.asdict(descriptor.capabilities),
        "options": options,
    }


def options_data(descriptor: Component[Any]) -> Iterator[dict[str, Any]]:
    """What a spec may write: each key's type in words, its default, its bounds and what it is for.

    Raises:
        PluginError: the options cannot be imported, or are none that a spec can be read into.
    """
    from areal_core.spec import forms  # the plain list needs no options
    from areal_core.spec.catalog import options_problem

    cls: Any = descriptor.options
    if problem := options_problem(descriptor):
        raise PluginError(
            f"{descriptor.kind}/{descriptor.name}", problem, "use attrs.frozen, and types that are imported"
        )
    hints = forms.hints(cls)
    for option in attrs.fields(cls):
        yield {
            "name": option.name,
            "type": forms.describe(hints[option.name]),
            "default": _default(option.default),
            "required": option.default is attrs.NOTHING,
            "bounds": {key: option.metadata[key] for key in BOUNDS if key in option.metadata},
            "doc": option.metadata.get("doc", ""),
        }


def _default(value: Any) -> Any:
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        value = None if value.takes_self else value.factory()
    return None if value is attrs.NOTHING else _plain(value)


def _plain(value: Any) -> Any:
    """As a spec would write it."""
    if attrs.has(type(value)):
        return _plain(attrs.asdict(value, recurse=False))
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, PurePath) else value
