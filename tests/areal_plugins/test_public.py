from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import areal_core.batch
import areal_core.contexts
import areal_core.data
import areal_core.protocols
import areal_plugins.data
import areal_plugins.protocols


@pytest.mark.parametrize(
    ("public", "source"),
    [
        (areal_plugins.data, areal_core.data),
        (areal_plugins.protocols, areal_core.protocols),
        (areal_plugins.protocols, areal_core.contexts),
        (areal_plugins.protocols, areal_core.batch),
    ],
)
def test_the_public_face_has_every_class_of_the_kernels_module(public: ModuleType, source: ModuleType) -> None:
    classes = {
        name for name, value in vars(source).items() if inspect.isclass(value) and value.__module__ == source.__name__
    }
    assert classes <= set(public.__all__)
    assert all(getattr(public, name) is getattr(source, name) for name in classes)


@pytest.mark.parametrize(
    "statement",
    [
        "from areal_plugins.data import Task",
        "from areal_plugins import data; data.Task",
        "import areal_plugins; areal_plugins.data.Task; areal_plugins.protocols.Engine",
    ],
)
def test_data_and_protocols_are_reached_in_every_way(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)


def test_importing_the_public_face_brings_nothing_heavy() -> None:
    code = "import sys, areal_plugins; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
