from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import attrs
import pytest

from areal_plugins import TrackerDescriptor
from areal_plugins.builtin.trackers import DESCRIPTORS

every_descriptor = pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda d: d.name)


def test_descriptors_load_neither_numpy_nor_torch() -> None:
    code = "import sys, areal_plugins.builtin.trackers; print(sorted({'numpy', 'torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@every_descriptor
def test_factories_exist(descriptor: TrackerDescriptor) -> None:
    module, attribute = descriptor.factory.split(":")
    assert callable(getattr(import_module(module), attribute))


@every_descriptor
def test_every_option_is_documented(descriptor: TrackerDescriptor) -> None:
    assert all(option.metadata["doc"].endswith(".") for option in attrs.fields(descriptor.options))
