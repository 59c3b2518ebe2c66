import subprocess
import sys

from areal_plugins.builtin import engine


def test_the_engine_is_described_without_torch_or_numpy():
    code = "import sys, areal_plugins.builtin.engine; print({'torch', 'numpy'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "set()"


def test_every_option_is_documented():
    (descriptor,) = engine.DESCRIPTORS
    assert all(field.metadata["doc"] for field in descriptor.options.__attrs_attrs__)


def test_it_takes_tensors_before_directories():
    (descriptor,) = engine.DESCRIPTORS
    assert descriptor.capabilities.accepts == ("tensors", "hf-dir")
    assert descriptor.capabilities.interruptible
