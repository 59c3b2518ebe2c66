"""Components by name, with a finding for each that cannot be had."""

from __future__ import annotations

import re
from typing import Any

from attrs import frozen, has

from areal_core.descriptors import Component
from areal_core.errors import PluginError
from areal_core.manager import Manager, State
from areal_core.requirements import pip_line, unmet_requirements
from areal_core.spec import forms
from areal_core.spec.findings import Report
from areal_core.spec.node import SpecPath

_CODES = {
    State.NOT_INSTALLED: "not-installed",
    State.BLOCKED: "blocked-plugin",
    State.IMPORT_FAILED: "import-failed",
    State.API_MISMATCH: "api-mismatch",
}


_KEY = re.compile(r"\w+:")
_SPACE_HINT = "write `key: value`, with a plain space after the colon"


@frozen(repr=False, eq=False)
class Catalog:
    """What the installed plugins offer, and what a spec is told about the rest.

    With `lost`, plugin files that the spec names cannot be told, and might offer any name.
    """

    manager: Manager
    report: Report
    lost: bool = False

    def find(self, kind: str, name: str, path: SpecPath) -> Component[Any] | None:
        """The component; None, once reported at `path`, when it cannot be had."""
        try:
            registered = self.manager.find(kind, name)
        except PluginError as error:
            self.report.error("ambiguous-component", f"{error.plugin}: {error.problem}", path, error.way_out)
            return None
        if registered is None:
            self._missing(kind, name, path)
            return None
        if problem := options_problem(registered.descriptor):
            self.report.error("plugin-failed", f"{problem}; {registered.plugin.origin} must change that", path)
            return None
        return registered.descriptor

    def known(self, kind: str, name: str) -> bool:
        """Whether anyone knows the name, installed or not."""
        return self.lost or name in self.manager.names(kind) or self.manager.missing(kind, name).state is not None

    def options_of(self, kind: str, name: str) -> type[Any] | None:
        """The class of an installed component's options, silently."""
        try:
            registered = self.manager.find(kind, name)
        except PluginError:
            return None
        if registered is None or options_problem(registered.descriptor):
            return None
        return registered.descriptor.options

    def requirements(self, component: Component[Any], path: SpecPath) -> None:
        """Report what the component needs and this interpreter lacks."""
        for reason in unmet_requirements(component.requires):
            message = f"{component.kind} `{component.name}` cannot run here: {reason}"
            self.report.unavailable("not-installed", message, path, pip_line(component.requires))

    def _missing(self, kind: str, name: str, path: SpecPath) -> None:
        missing = self.manager.missing(kind, name)
        if missing.state is None and self.lost:
            return
        if missing.state is None:
            hint = _SPACE_HINT if _KEY.match(name) else missing.way_out
            self.report.error("unknown-component", missing.message, path, hint)
        elif missing.state in (State.NOT_INSTALLED, State.BLOCKED):
            self.report.unavailable(_CODES[missing.state], missing.message, path, missing.way_out)
        else:
            self.report.error(_CODES[missing.state], missing.message, path, missing.way_out)


def options_problem(component: Component[Any]) -> str:
    """What keeps a component's options from being read; empty when they can be."""
    address = f"{component.kind}/{component.name}"
    try:
        if not has(component.options):
            return f"the options of {address} are no attrs class"
        forms.hints(component.options)
    except PluginError as error:
        return f"{address}: {error.problem}"
    except Exception as error:  # a name that only a type checker imports, as a plugin's annotations may have it
        return f"the types of the options of {address} cannot be resolved: {type(error).__name__}: {error}"
    return ""
