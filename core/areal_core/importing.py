"""Objects by name: `module:attribute`, as descriptors, entry points and roles give them."""

from __future__ import annotations

from functools import reduce
from importlib import import_module
from typing import Any


def import_object(name: str) -> Any:
    """What `name` points to; raises `ValueError` where it has no attribute, and whatever the import does."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ValueError(f"{name!r} is not of the form module:attr")
    return reduce(getattr, attribute.split("."), import_module(module))
