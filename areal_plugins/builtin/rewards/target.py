"""Finds a function by the name that a spec gives it."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any

from areal_core.local import load_file
from areal_plugins import InputError


def find(target: str) -> Callable[..., Any]:
    """The function that `package.module:function` or `/path/file.py:function` names.

    Raises:
        InputError: the name is malformed, or there is no such file, module or function. What the
            module itself raises while it is imported passes through.

    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name:
        raise InputError(target, "names no function", "write package.module:function or ./file.py:function")
    module = load_file(Path(place)) if place.endswith(".py") else _module(place)
    try:
        found: Any = reduce(getattr, name.split("."), module)
    except AttributeError:
        raise InputError(target, f"there is no {name!r} in {place}") from None
    if not callable(found):
        raise InputError(target, f"{name!r} is {type(found).__name__}, which cannot be called")
    function: Callable[..., Any] = found
    return function


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # a module that it needs is missing
        raise InputError(
            name, "there is no such module", "a file is named by its path, as ./file.py:function"
        ) from None
