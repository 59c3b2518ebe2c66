"""Plugins that a spec names itself: a file beside it (`plugins: [./my_reward.py]`), or an installed module."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType

from areal_core.errors import InputError

_PREFIX = "areal_local_"


def is_module(plugin: str) -> bool:
    """Whether `plugin` is a module's dotted name; else it is a file, and ends in `.py`."""
    return not plugin.endswith(".py") and all(part.isidentifier() for part in plugin.split("."))


def load_plugin(plugin: str) -> ModuleType:
    """Import what a spec names; raises whatever the import does."""
    return importlib.import_module(plugin) if is_module(plugin) else load_file(Path(plugin))


def is_local(module: str) -> bool:
    """Whether the module `module` is such a file, which no other process finds by its name."""
    return module.startswith(_PREFIX)


def module_name(path: Path) -> str:
    """The file's module name: the same in every process, different for every path."""
    return f"{_PREFIX}{path.stem}_{zlib.crc32(str(path.resolve()).encode()):08x}"


def load_file(path: Path) -> ModuleType:
    """Import the file once, under `module_name`, so that its factories can be named `f"{__name__}:make"`.

    Raises:
        InputError: there is no such file. Whatever the file raises passes through.
    """
    name = module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise InputError(str(path), "no such plugin file")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError(str(path), "a plugin file must be a Python module (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
