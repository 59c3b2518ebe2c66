"""Whether CANN and torch_npu are there, found out without importing them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

INSTALLED = Path("/usr/local/Ascend")
"""Where CANN's installer puts it."""

_LIBRARY = "libhccl.so"


def lacking() -> Iterator[str]:
    """What is missing, one sentence each, with the way out."""
    yield from _lacking_cann()
    yield from _lacking_torch_npu()


def _lacking_cann() -> Iterator[str]:
    if _loadable():
        return
    scripts = sorted(INSTALLED.glob("*/set_env.sh"))
    if scripts:
        yield f"CANN is installed but not active: source {scripts[0]}"
    else:
        yield f"CANN is missing ({_LIBRARY} cannot be found): install the CANN toolkit and source its set_env.sh"


def _loadable() -> bool:
    """Whether the loader would find HCCL; it is asked only where the usual way to set it up was not taken."""
    paths = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    if any((Path(path) / _LIBRARY).exists() for path in paths if path):
        return True
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        return False
    return True


def _lacking_torch_npu() -> Iterator[str]:
    torch, torch_npu = _release("torch"), _release("torch-npu")
    if torch is None:
        yield "torch is missing: pip install 'areal-plugins[torch]'"
    elif torch_npu is None:
        yield f"torch_npu is missing: pip install 'torch-npu=={torch}.*' (once CANN is active)"
    elif torch_npu != torch:
        yield f"torch_npu {torch_npu} does not go with torch {torch}: pip install 'torch-npu=={torch}.*'"


def _release(distribution: str) -> str | None:
    """The first two parts of the installed version."""
    try:
        return ".".join(metadata.version(distribution).split(".")[:2])
    except metadata.PackageNotFoundError:
        return None
