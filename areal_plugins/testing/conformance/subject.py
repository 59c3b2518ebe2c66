"""The component under test: found as a spec finds it, built as a worker builds it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import field, frozen

from areal_core.contexts import ModuleRef
from areal_core.descriptors import Component
from areal_core.errors import PluginError
from areal_core.hookspecs import COMPONENT_HOOKS
from areal_core.manager import Manager
from areal_core.spec.experiment import Selected
from areal_core.workers.build import build, make_ref, structure


@frozen
class Case:
    """A component with options other than its defaults; `files`: local plugin files to import first."""

    component: str | Component[Any]
    options: Mapping[str, Any] = field(factory=dict)
    files: tuple[str, ...] = ()


@frozen(eq=False)
class Subject:
    """A descriptor, and the options to build it with as plain data."""

    descriptor: Component[Any]
    given: Mapping[str, Any] = field(factory=dict)
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, kind: str, component: str | Component[Any] | Case) -> Subject:
        """What a `component` fixture returned: a name (`engine/torch`), a descriptor, or either in a `Case`.

        Raises:
            PluginError: no installed plugin offers it.
        """
        case = component if isinstance(component, Case) else Case(component)
        descriptor = case.component
        if isinstance(descriptor, str):
            descriptor = _find(kind, descriptor, case.files)
        return cls(descriptor, case.options, tuple(str(Path(file).resolve()) for file in case.files))

    @property
    def title(self) -> str:
        """`kind/name`."""
        return f"{self.descriptor.kind}/{self.descriptor.name}"

    @property
    def options(self) -> Any:
        """An instance of the component's options."""
        return structure(self.given, self.descriptor.options)

    @property
    def ref(self) -> ModuleRef:
        """What a worker is sent."""
        return make_ref(Selected(self.descriptor, self.options), self.files)

    def build(self, context: Any) -> Any:
        """The live component."""
        return build(self.ref, context)

    def plugin_module(self) -> ModuleType:
        """The loaded module whose hook returns the descriptor.

        Raises:
            PluginError: no loaded module does.
        """
        hook = COMPONENT_HOOKS[self.descriptor.kind]
        for module in list(sys.modules.values()):
            implementation = vars(module).get(hook) if isinstance(module, ModuleType) else None
            if implementation is not None and hasattr(implementation, "areal_plugins_impl"):
                offered = {(found.name, found.factory) for found in implementation()}
                if (self.descriptor.name, self.descriptor.factory) in offered:
                    return module
        raise PluginError(self.title, f"no module that is loaded offers it by the hook {hook}")


def _find(kind: str, name: str, files: tuple[str, ...]) -> Component[Any]:
    manager = installed(files)
    kind = kind or name.partition("/")[0]
    found = manager.find(kind, name)
    if found is None:
        missing = manager.missing(kind, name)
        raise PluginError(name, missing.message, missing.way_out)
    return found.descriptor


@cache
def installed(files: tuple[str, ...] = ()) -> Manager:
    """The plugins of this interpreter, and of `files`; looked for once."""
    return Manager.discover(files)
