from importlib.util import find_spec

import pytest

from areal_core.descriptors import CheckContext
from areal_core.spec.model import LoraSpec, ModelSpec, PoolSpec, ResourcesSpec, Spec
from areal_plugins import Severity
from areal_plugins.builtin.trainer import AdamWOptions, TorchTrainerOptions, check

PLAIN, ADAPTED = Spec(), Spec(model=ModelSpec(lora=LoraSpec()))


def findings(what, spec, options, path=()):
    return list(what(CheckContext(spec, options, path)))


def without_peft(name):
    return None if name == "peft" else find_spec(name)


@pytest.mark.parametrize("spec", [PLAIN, ADAPTED])
def test_on_one_device_with_peft_all_is_well(spec):
    assert findings(check.trainer, spec, TorchTrainerOptions()) == []


def test_several_devices_are_for_other_backends():
    spec = Spec(resources=ResourcesSpec(train=PoolSpec(num_gpus=4)))
    (finding,) = findings(check.trainer, spec, TorchTrainerOptions())
    assert finding.severity is Severity.UNAVAILABLE
    assert finding.path == ("resources", "train")


def test_adapters_without_peft_cannot_be_had_here(monkeypatch):
    monkeypatch.setattr(check, "find_spec", without_peft)
    assert findings(check.adapters, PLAIN, TorchTrainerOptions()) == []
    (finding,) = findings(check.adapters, ADAPTED, TorchTrainerOptions())
    assert finding.severity is Severity.UNAVAILABLE
    assert finding.path == ("model", "lora")


@pytest.mark.parametrize(("betas", "wrong"), [((0.9, 0.95), 0), ((0.0, 0.0), 0), ((1.0, 0.9), 1), ((0.9, -0.1), 1)])
def test_betas_are_shares(betas, wrong):
    found = findings(check.betas, PLAIN, AdamWOptions(betas=betas), ("training", "optimizer"))
    assert len(found) == wrong
    assert all(f.path == ("training", "optimizer", "betas") for f in found)
