"""`areal-plugins plugins check`: the conformance kit on an installed component, as a table."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import attrs

from areal_core.descriptors import KINDS
from areal_core.errors import InputError, PluginError
from areal_core.manager import Manager, Registered
from areal_plugins.cli import dumped

if TYPE_CHECKING:
    from areal_plugins.testing.conformance.running import Result

_TESTING = "pip install 'areal-plugins[testing]'"

Found = Sequence[tuple[Registered, "Sequence[Result]"]]


def main(manager: Manager, args: argparse.Namespace) -> int:
    """Run the rules of every component that `args.name` means; 1 when one is broken.

    Raises:
        PluginError: there is no such component or plugin. InputError: pytest is missing, or an option is wrong.

    """
    _need_pytest()
    wanted, options = _wanted(manager, args.name), dict(map(_option, args.option))
    found = [(entry, _rules(entry, options, args.plugin)) for entry in wanted]
    print(
        dumped([_data(entry, result) for entry, results in found for result in results]) if args.json else _text(found)
    )
    return int(any(result.outcome == "failed" for _, results in found for result in results))


def _need_pytest() -> None:
    if find_spec("pytest") is None:
        raise InputError("plugins check", "the rules are pytest tests, and pytest is not installed", _TESTING)


def _wanted(manager: Manager, name: str) -> list[Registered]:
    kind, _, bare = name.rpartition("/")
    entries = manager.components(kind or None) if not kind or kind in KINDS else []
    named = [entry for entry in entries if entry.descriptor.name == bare]
    if not kind:
        named = [entry for entry in entries if entry.plugin.name == name] or named
    if named:
        return named
    raise _unknown(manager, kind, bare)


def _unknown(manager: Manager, kind: str, bare: str) -> PluginError:
    name = f"{kind}/{bare}" if kind else bare
    if kind in KINDS:
        missing = manager.missing(kind, bare)
        return PluginError(name, missing.message, missing.way_out)
    for plugin in manager.plugins:
        if plugin.name == name:
            return PluginError(name, plugin.cause or "it has no components", plugin.way_out)
    near = [hint for of in KINDS if (hint := manager.suggestion(of, bare)).startswith("did you mean")]
    way_out = near[0] if near else "see areal-plugins plugins list"
    return PluginError(name, "no component or plugin has this name", way_out)


def _option(given: str) -> tuple[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    key, equals, value = given.partition("=")
    if not equals:
        raise InputError("--option", f"{given!r} is not KEY=VALUE")
    try:
        return key, YAML(typ="safe", pure=True).load(value)
    except YAMLError as error:
        raise InputError("--option", f"the value of {key} is no YAML: {value!r}") from error


def _rules(entry: Registered, options: dict[str, Any], files: Sequence[str]) -> Sequence[Result]:
    from areal_plugins.testing.conformance import Case, conformance_class
    from areal_plugins.testing.conformance.running import run

    _check_options(entry, options)
    kind = conformance_class(entry.descriptor.kind)
    return run(kind, Case(entry.descriptor, options, tuple(files)))


def _check_options(entry: Registered, options: dict[str, Any]) -> None:
    """Refuse options that do not fit, and to go without those that have no default."""
    from cattrs import transform_error

    from areal_core.workers.build import structure

    kind = entry.descriptor.options
    try:
        structure(options, kind)
    except Exception as error:
        if not options and not any(field.default is attrs.NOTHING for field in attrs.fields(kind)):
            return  # not the user's fault: the rules about options say what is wrong
        problems = "; ".join(transform_error(error, path="options"))
        raise InputError(_title(entry), problems, "give options with --option KEY=VALUE") from error


def _data(entry: Registered, result: Result) -> dict[str, str]:
    return {
        "component": _title(entry),
        "rule": result.rule,
        "test": result.test,
        "parameters": result.parameters,
        "result": result.outcome,
        "cause": result.cause,
    }


def _title(entry: Registered) -> str:
    return f"{entry.descriptor.kind}/{entry.descriptor.name}"


def _text(found: Found) -> str:
    return "\n\n".join("\n".join(_table(entry, results)) for entry, results in found)


def _table(entry: Registered, results: Sequence[Result]) -> Iterator[str]:
    yield f"{_title(entry)} ({entry.plugin.origin})"
    width = max((len(result.rule) for result in results), default=0)
    for result in results:
        yield f"  {result.rule:<{width}}  {result.outcome:<7}  {result.cause}".rstrip()
    yield "  " + ", ".join(_counts(result.outcome for result in results))


def _counts(outcomes: Iterable[str]) -> Iterator[str]:
    every = list(outcomes)
    for outcome in ("passed", "failed", "skipped"):
        if count := every.count(outcome):
            yield f"{count} {outcome}"
