"""Configs of other frameworks as specs: `areal-plugins convert areal|trl|verl FILE`.

`theirs` reads a config, a module a framework holds the table of what its keys mean here, `engine` applies it, and
`render` writes the spec. No key is dropped in silence: what has no counterpart is a comment where it would belong.
"""

from __future__ import annotations

from importlib import import_module

from areal_plugins.convert.engine import Conversion, Entry, apply
from areal_plugins.convert.table import Framework
from areal_plugins.convert.theirs import Facts, read

__all__ = ["FRAMEWORKS", "Conversion", "Entry", "Facts", "Framework", "convert", "framework"]

FRAMEWORKS = ("areal", "trl", "verl")


def framework(name: str) -> Framework:
    """The table of one of `FRAMEWORKS`."""
    found: Framework = import_module(f"areal_plugins.convert.{name}").FRAMEWORK
    return found


def convert(name: str, file: str, facts: Facts | None = None) -> Conversion:
    """The spec that means what the config `file` of framework `name` means.

    Raises:
        SpecError: the file cannot be read, or is no config.
    """
    table = framework(name)
    return apply(table, read(file, table.defaults, facts or Facts()), file)
