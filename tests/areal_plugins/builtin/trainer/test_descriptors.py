import subprocess
import sys
from importlib import import_module

from areal_core.protocols import Trainer
from areal_plugins.builtin.trainer import DESCRIPTORS, OPTIMIZERS
from areal_plugins.builtin.trainer.trainer import TorchTrainer


def test_describing_the_trainer_imports_neither_torch_nor_numpy():
    code = "import sys, areal_plugins.builtin.trainer; print(*{'torch', 'numpy', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_factories_are_where_the_descriptors_say():
    for descriptor in (*DESCRIPTORS, *OPTIMIZERS):
        module, _, attribute = descriptor.factory.partition(":")
        assert callable(getattr(import_module(module), attribute))


def test_it_has_what_the_protocol_asks_for():
    wanted = {name for name in vars(Trainer) if not name.startswith("_")}
    assert wanted <= set(dir(TorchTrainer))


def test_it_says_what_it_can():
    (descriptor,) = DESCRIPTORS
    able = descriptor.capabilities
    assert descriptor.name == "torch"
    assert able.offers == ("tensors", "hf-dir")
    assert able.lora
    assert able.reference
    assert able.critic
