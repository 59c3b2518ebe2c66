"""`areal-plugins plugins`: what is installed, in which state, and what each component takes."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from areal_core.descriptors import KINDS
from areal_core.manager import Manager, Registered, State
from areal_core.requirements import pip_line, unmet_requirements
from areal_plugins.cli import dumped


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`plugins [list|show NAME|check NAME|new NAME --kind K] [--json]`."""
    commands = parser.add_subparsers(dest="action", metavar="list|show|check|new")
    listing = commands.add_parser("list", help="every plugin, its state and its components")
    show = commands.add_parser("show", help="one component or plugin: options, capabilities, origin")
    show.add_argument("name", help="a component (`torch`, or `engine/torch` to be exact) or a plugin")
    check = commands.add_parser("check", help="prove that a component, or all of a plugin's, keeps its protocol")
    check.add_argument("name", help="a component (`engine/torch`), or a plugin for all of its components")
    check.add_argument(
        "--option", action="append", default=[], metavar="KEY=VALUE", help="an option of the component, read as YAML"
    )
    new = commands.add_parser("new", help="write a plugin project that can be installed and passes its tests")
    new.add_argument("name", help="the component's name, such as word-count")
    new.add_argument("--kind", required=True, help=f"one of {', '.join(KINDS)}")
    new.add_argument("--dir", type=Path, default=Path(), metavar="DIR", help="write it below DIR; here by default")
    for command in (listing, show, check, new):
        command.add_argument("--json", action="store_true", help="machine-readable output")
        command.add_argument("--plugin", action="append", default=[], metavar="FILE", help="also load this plugin file")
    parser.set_defaults(action="list", json=False, plugin=[])


def main(args: argparse.Namespace) -> int:
    """Print; exit code 2 when nothing has the name, 1 when `check` finds a rule that is broken, 0 else."""
    manager = Manager.discover(args.plugin)
    if args.action == "check":
        from areal_plugins.cli import conform  # brings the conformance kit

        return conform.main(manager, args)
    if args.action == "new":
        return _new(manager, args)
    if args.action == "show":
        from areal_plugins.cli.show import show  # the list needs none of it

        print(show(manager, args.name, args.json))
    elif args.json:
        from areal_plugins.cli.inventory import inventory

        print(dumped(inventory(manager)))
    else:
        print("\n".join(_listing(manager)))
    return 0


def _new(manager: Manager, args: argparse.Namespace) -> int:
    from areal_plugins.scaffold import checked, write  # the other commands need no templates

    names = checked(args.kind, args.name, manager)
    files = write(names, args.dir)
    folder = args.dir / names.distribution
    if args.json:
        data = {**names.values(), "directory": str(folder), "files": [str(f.relative_to(folder)) for f in files]}
        print(dumped(data))
        return 0
    shown = [f"  {file}" for file in files]
    steps = [f"cd {folder}", 'pip install -e ".[test]"', "pytest", "areal-plugins run example.yaml"]
    print(
        "\n".join([f"{names.kind}/{names.name} as {names.distribution}:", *shown, "next:", *(f"  {s}" for s in steps)])
    )
    return 0


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
