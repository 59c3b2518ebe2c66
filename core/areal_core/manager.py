"""Finds plugins, judges each on its own, and answers for every component by kind and name."""

from __future__ import annotations

import enum
import inspect
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pluggy
from attrs import evolve, frozen

from areal_core import API_VERSION, ENTRY_POINT_GROUP, hookspecs, installed
from areal_core.descriptors import KINDS, Component
from areal_core.errors import ArealError, PluginError
from areal_core.hookspecs import COMPONENT_HOOKS
from areal_core.known_plugins import KNOWN, SYNONYMS
from areal_core.local import is_module, load_plugin
from areal_core.requirements import pip_line, unmet_requirements

HEAVY = ("torch", "torch_npu", "transformers", "vllm", "sglang", "ray", "deepspeed", "numpy")
"""What a plugin must not import when it is loaded."""

_BUILTIN_DISTRIBUTION = "areal-plugins"


class State(enum.Enum):
    """What became of a plugin."""

    READY = "ready"
    NOT_INSTALLED = "not installed"
    IMPORT_FAILED = "import failed"
    BLOCKED = "blocked"
    API_MISMATCH = "API mismatch"


@frozen(repr=False, eq=False)
class PluginRecord:
    """A plugin as found: its state, why, and what to do; `entry` is its entry point or file."""

    name: str
    state: State
    distribution: str = ""
    version: str = ""
    entry: str = ""
    cause: str = ""
    way_out: str = ""
    warnings: tuple[str, ...] = ()
    components: tuple[Component[Any], ...] = ()
    module: Any = None

    @property
    def origin(self) -> str:
        """The distribution with its version, or the file."""
        return f"{self.distribution} {self.version}".strip() or self.entry


@frozen(repr=False, eq=False)
class Registered:
    """A component and the plugin that offers it."""

    descriptor: Component[Any]
    plugin: PluginRecord


@frozen(repr=False, eq=False)
class Missing:
    """Why a component cannot be had; `state` None: nobody knows the name."""

    state: State | None
    message: str
    way_out: str = ""


class _Rejected(Exception):
    """A plugin breaks the API; becomes its record's cause."""


@frozen(repr=False, eq=False)
class _Source:
    """Something that may be a plugin, before it is imported."""

    name: str
    entry: str
    load: Any
    distribution: str = ""
    version: str = ""

    def record(self, state: State, **more: Any) -> PluginRecord:
        return PluginRecord(self.name, state, self.distribution, self.version, self.entry, **more)


class Manager:
    """All plugins of this interpreter. Made by `discover`; immutable afterwards."""

    def __init__(self, plugins: Iterable[PluginRecord]) -> None:
        self.plugins = tuple(plugins)
        self._components: dict[tuple[str, str], list[Registered]] = {}
        for plugin in self.plugins:
            for descriptor in plugin.components:
                found = self._components.setdefault((descriptor.kind, descriptor.name), [])
                found.append(Registered(descriptor, plugin))

    @classmethod
    def discover(cls, named: Sequence[str] = ()) -> Manager:
        """Load installed plugins (see `AREAL_PLUGINS_DISABLE`, `AREAL_PLUGINS_AUTOLOAD`), then `named`.

        These are files or modules that a spec names; one that is installed as a plugin is loaded once.
        """
        sources = list(_entry_points())
        entries = {source.entry for source in sources}
        more = (_named_source(plugin) for plugin in dict.fromkeys(named) if plugin not in entries)
        return cls(_judge(source) for source in (*sources, *more))

    def joined_by(self, *plugins: Any) -> Manager:
        """With further plugins, modules or other objects that have hook implementations, as for tests."""
        return Manager([*self.plugins, *(_judge(_given_source(plugin)) for plugin in plugins)])

    def find(self, kind: str, name: str) -> Registered | None:
        """The component, by `name` or `kind/name`; None when no ready plugin offers it.

        Raises:
            PluginError: two distributions offer it.
        """
        found = self._components.get((kind, name.removeprefix(f"{kind}/")), [])
        if len(found) > 1:
            raise PluginError(f"{kind}/{name}", _conflict(found), "uninstall one, or AREAL_PLUGINS_DISABLE=<plugin>")
        return found[0] if found else None

    def names(self, kind: str) -> list[str]:
        """What there is of a kind."""
        return sorted(name for of, name in self._components if of == kind)

    def components(self, kind: str | None = None) -> list[Registered]:
        """Every component that can be had, of one kind or of all."""
        entries = [r for (of, _), found in self._components.items() if kind in (None, of) for r in found]
        return sorted(entries, key=lambda r: (list(KINDS).index(r.descriptor.kind), r.descriptor.name))

    @property
    def conflicts(self) -> list[str]:
        """Names that two plugins claim, one sentence each."""
        return [f"{kind}/{name}: {_conflict(f)}" for (kind, name), f in self._components.items() if len(f) > 1]

    def missing(self, kind: str, name: str) -> Missing:
        """Why `find` returned None."""
        bare = name.removeprefix(f"{kind}/")
        if distribution := KNOWN.get((kind, bare)):
            return self._known(kind, bare, distribution)
        suspects = [
            p for p in self.plugins if p.state is not State.READY and bare in (p.name, p.name.replace("_", "-"))
        ]
        for plugin in suspects:
            return Missing(plugin.state, f"plugin {plugin.name} ({plugin.origin}): {plugin.cause}", plugin.way_out)
        return Missing(None, f"no {kind} is called {bare!r}{self._suspects()}", self.suggestion(kind, bare))

    def suggestion(self, kind: str, name: str) -> str:
        """The nearest name of the kind, installed or known; empty when none is near."""
        if synonym := SYNONYMS.get((kind, name)):
            return f"did you mean `{synonym}`?"
        candidates = [*self.names(kind), *(n for k, n in KNOWN if k == kind)]
        near = _nearest(name, candidates)
        return f"did you mean `{near[0]}`?" if near else f"there are: {', '.join(sorted(set(candidates)))}"

    def observers(self) -> pluggy.PluginManager:
        """A pluggy manager on which the observer hooks of every ready plugin can be called."""
        manager = _hooks()
        for plugin in self.plugins:
            if plugin.module is not None:
                manager.register(plugin.module, name=f"{plugin.name}:{plugin.entry}")
        return manager

    def _suspects(self) -> str:
        """The plugins that might have had it."""
        failed = [plugin for plugin in self.plugins if plugin.state in (State.IMPORT_FAILED, State.API_MISMATCH)]
        return "".join(f"; plugin {plugin.name} is broken ({plugin.state.value}: {plugin.cause})" for plugin in failed)

    def _known(self, kind: str, name: str, distribution: str) -> Missing:
        for plugin in self.plugins:
            if plugin.distribution == distribution:
                return _broken(plugin)
        message = f"{kind} `{name}` is in the plugin {distribution}, which is not installed"
        return Missing(State.NOT_INSTALLED, message, f"pip install {distribution}")


def _entry_points() -> Iterator[_Source]:
    for entry in installed.entry_points(ENTRY_POINT_GROUP):
        owner = entry.distribution
        yield _Source(entry.name, entry.value, entry.load, owner.name, owner.version)


def _named_source(plugin: str) -> _Source:
    name = plugin.rpartition(".")[2] if is_module(plugin) else Path(plugin).stem
    return _Source(name, plugin, lambda: load_plugin(plugin))


def _given_source(plugin: Any) -> _Source:
    name = getattr(plugin, "__name__", type(plugin).__name__)
    return _Source(name, name, lambda: plugin)


def _blocked(source: _Source) -> str | None:
    disabled = [name.strip() for name in os.environ.get("AREAL_PLUGINS_DISABLE", "").split(",")]
    if source.name in disabled or (source.distribution and source.distribution in disabled):
        return f"AREAL_PLUGINS_DISABLE names {source.name}"
    foreign = source.distribution and source.distribution != _BUILTIN_DISTRIBUTION
    if foreign and os.environ.get("AREAL_PLUGINS_AUTOLOAD") == "0":
        return "AREAL_PLUGINS_AUTOLOAD=0 leaves the built-in plugins only"
    return None


def _judge(source: _Source) -> PluginRecord:
    """Import one plugin and check what it offers; whatever is wrong with it stays its own fault."""
    if reason := _blocked(source):
        return source.record(State.BLOCKED, cause=reason, way_out="unset the variable")
    before = set(sys.modules)
    try:
        with redirect_stdout(sys.stderr):  # what a plugin prints is no part of our output, which may be JSON
            module = source.load()
            hooks, deprecated = _registered(module)
            components = tuple(_collect(hooks))
    except _Rejected as error:
        return source.record(State.API_MISMATCH, cause=str(error), way_out=_replacement(source))
    except (Exception, SystemExit) as error:
        return source.record(State.IMPORT_FAILED, cause=_root_cause(error), way_out=_retry(source))
    heavy = sorted(set(HEAVY) & (set(sys.modules) - before))
    told = (*deprecated, *([f"imports {', '.join(heavy)} when it is loaded"] if heavy else []))
    record = source.record(State.READY, components=components, warnings=told, module=module)
    return _without_requirements(record)


def _without_requirements(record: PluginRecord) -> PluginRecord:
    """A plugin none of whose components can run here counts as not installed; its components stay known."""
    if not record.components or any(not unmet_requirements(component.requires) for component in record.components):
        return record
    needed = sorted({requirement for component in record.components for requirement in component.requires})
    cause = "; ".join(sorted(unmet_requirements(needed)))
    return evolve(record, state=State.NOT_INSTALLED, cause=cause, way_out=pip_line(needed))


def _hooks() -> pluggy.PluginManager:
    manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    return manager


def _registered(module: Any) -> tuple[pluggy.PluginManager, tuple[str, ...]]:
    """The module's hooks, and what pluggy says of those that are deprecated (`warn_on_impl` of a hook spec)."""
    manager = _hooks()
    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            manager.register(module)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise _Rejected(_hook_problem(module, str(error))) from error
    callers = manager.get_hookcallers(module) or ()
    for caller in callers:
        if any(found.wrapper or found.hookwrapper for found in caller.get_hookimpls()):
            raise _Rejected(
                f"{caller.name} is a wrapper: every plugin is asked and told by itself, with nothing to wrap"
            )
    called = {caller.name for caller in callers}
    for name in _hook_names():
        if name not in called and inspect.isfunction(getattr(module, name, None)):
            raise _Rejected(f"{name} is never called: it has no @hookimpl")
    return manager, tuple(str(warning.message) for warning in told)


def _collect(manager: pluggy.PluginManager) -> Iterator[Component[Any]]:
    for kind, hook in COMPONENT_HOOKS.items():
        caller = getattr(manager.hook, hook)
        found = caller()
        if not found and caller.get_hookimpls():
            found = [None]  # pluggy leaves it out: a `return` was forgotten
        for returned in found:
            yield from _checked(kind, hook, returned)


def _checked(kind: str, hook: str, returned: Any) -> Iterator[Component[Any]]:
    expected = KINDS[kind]
    if isinstance(returned, str | Component) or not isinstance(returned, Iterable):
        raise _Rejected(f"{hook} must return an iterable of {expected.__name__}, not {type(returned).__name__}")
    for descriptor in returned:
        if not isinstance(descriptor, expected):
            raise _Rejected(f"{hook} must return {expected.__name__}, not {type(descriptor).__name__}")
        if ":" not in descriptor.factory:
            raise _Rejected(
                f"the factory of {kind}/{descriptor.name}, {descriptor.factory!r}, is no `module:attribute`"
            )
        if descriptor.api_version != API_VERSION:
            age = "older" if descriptor.api_version < API_VERSION else "newer"
            raise _Rejected(
                f"{kind}/{descriptor.name} is written for plugin API {descriptor.api_version}, {age} than {API_VERSION}"
            )
        yield descriptor


def _hook_problem(module: Any, message: str) -> str:
    """pluggy's message, with the nearest hook for each name that does not exist."""
    known = _hook_names()
    parser = pluggy.PluginManager(ENTRY_POINT_GROUP)
    for name in dir(module):
        if parser.parse_hookimpl_opts(module, name) is not None and name not in known:
            near = _nearest(name, known)
            return f"there is no hook {name}" + (f"; did you mean `{near[0]}`?" if near else "")
    return " ".join(message.split())


def _hook_names() -> list[str]:
    return [name for name in vars(hookspecs) if name.startswith("areal_")]


def _nearest(name: str, candidates: Sequence[str]) -> list[str]:
    import difflib  # only mistakes need it

    return difflib.get_close_matches(name, candidates, n=1)


def _root_cause(error: BaseException) -> str:
    """The innermost cause with the place it was raised at."""
    while error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__):
        error = error.__cause__ or error.__context__ or error
    if isinstance(error, SyntaxError) and error.filename:  # raised at no line of the file that it is about
        return f"{type(error).__name__}: {error.msg} ({error.filename}:{error.lineno})"
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    told = isinstance(error, ArealError)  # on purpose, and says what it is about
    place = f" ({last.tb_frame.f_code.co_filename}:{last.tb_lineno})" if last and not told else ""
    return f"{type(error).__name__}: {error}{place}"


def _retry(source: _Source) -> str:
    """A command that shows the whole traceback."""
    if source.distribution or is_module(source.entry):
        return f"see the traceback with: python -c 'import {source.entry.partition(':')[0]}'"
    if not Path(source.entry).is_file():
        return f"write {source.entry}, or name a file that is there"
    return f"see the traceback with: python {source.entry}"


def _replacement(source: _Source) -> str:
    """What a user can do about a plugin that breaks the API; who names a file can mend it."""
    if source.distribution or is_module(source.entry):
        return f"install a version of {source.distribution or source.entry} for plugin API {API_VERSION}"
    return f"mend {source.entry}"


def _broken(plugin: PluginRecord) -> Missing:
    return Missing(plugin.state, f"plugin {plugin.name} ({plugin.origin}): {plugin.cause}", plugin.way_out)


def _conflict(found: Sequence[Registered]) -> str:
    return "offered by " + " and by ".join(r.plugin.origin for r in found)
