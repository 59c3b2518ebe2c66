"""Plugins that are a file beside the spec (`plugins: [./my_reward.py]`)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from areal_core.errors import InputError


def module_name(path: Path) -> str:
    """The file's module name: the same in every process, different for every path."""
    import hashlib  # brings OpenSSL, and most specs load no file

    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return f"areal_local_{path.stem}_{digest}"


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
