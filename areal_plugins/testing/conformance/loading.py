"""Run in a fresh interpreter with an order (JSON): load one plugin, and say what that has imported."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any


def main(order: dict[str, Any]) -> None:
    """Print what was found, as JSON, in the last line."""
    sys.path[:] = order["path"]
    module = _load(order)
    from areal_core.descriptors import KINDS
    from areal_core.hookspecs import COMPONENT_HOOKS

    hook = COMPONENT_HOOKS[order["kind"]]
    descriptor = next(d for d in getattr(module, hook)() if d.name == order["name"])
    assert isinstance(descriptor, KINDS[order["kind"]])
    descriptor.options  # noqa: B018 - may be imported only now
    heavy = sorted(set(order["heavy"]) & set(sys.modules))
    print(json.dumps({"module": module.__name__, "heavy": heavy, "problem": _problem(descriptor.factory)}))  # noqa: T201


def _load(order: dict[str, Any]) -> Any:
    from areal_core.local import load_file

    for file in order["files"]:
        load_file(Path(file))
    if order["module"] in sys.modules:
        return sys.modules[order["module"]]
    try:
        return importlib.import_module(order["module"])
    except ModuleNotFoundError as error:
        if not order["module"].startswith(str(error.name)):
            raise
        return load_file(Path(order["file"]))


def _problem(factory: str) -> str:
    module, _, _ = factory.partition(":")
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
