from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from areal_plugins import TransportDescriptor
from areal_plugins.builtin.transports import DESCRIPTORS


@pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda descriptor: descriptor.name)
def test_every_option_is_documented(descriptor: TransportDescriptor) -> None:
    assert all(option.metadata["doc"] for option in attrs.fields(descriptor.options))


def test_descriptors_are_light() -> None:
    code = "import sys, areal_plugins.builtin.transports; print({'torch', 'numpy', 'safetensors'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
