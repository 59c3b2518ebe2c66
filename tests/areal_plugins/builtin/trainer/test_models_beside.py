"""The models beside the policy: its frozen copy and the critic."""

import numpy as np
import pytest
import torch

from areal_core.contexts import LoraPlan
from areal_plugins.builtin.trainer.micro import place
from areal_plugins.builtin.trainer.packing import pack, split
from areal_plugins.builtin.trainer.reference import Snapshot
from areal_plugins.builtin.trainer.units import flatten
from areal_plugins.builtin.trainer.value_model import ValueModel


def test_a_snapshot_stands_in_for_the_parameters_and_steps_back():
    weight = torch.nn.Parameter(torch.ones(2))
    snapshot = Snapshot({"w": weight})
    with torch.no_grad():
        weight += 1
    with snapshot.active():
        assert weight.tolist() == [1, 1]
    assert weight.tolist() == [2, 2]


def test_a_snapshot_steps_back_after_an_error():
    weight = torch.nn.Parameter(torch.ones(1))
    snapshot = Snapshot({"w": weight})
    with torch.no_grad():
        weight += 1
    with pytest.raises(RuntimeError, match="inside"), snapshot.active():
        raise RuntimeError("inside")
    assert weight.tolist() == [2]


def test_a_renewed_snapshot_has_the_values_of_now():
    weight = torch.nn.Parameter(torch.ones(1))
    snapshot = Snapshot({"w": weight})
    with torch.no_grad():
        weight += 1
    snapshot.renew()
    assert snapshot.values["w"].tolist() == [2]


@pytest.fixture
def micro(tools):
    units = flatten(tools.random_batch(np.random.default_rng(0)))
    (pieces,) = split(units, np.ones(len(units.starts), dtype=bool), 10**6)
    return place(pack(units, pieces), torch.device("cpu"))


def test_a_new_critic_expects_nothing(build, micro):
    values = ValueModel(build()._policy).score(micro)
    assert values.shape == micro.predict.shape
    assert not values.any()


def test_a_critic_is_a_copy(build):
    policy = build()._policy
    critic = ValueModel(policy)
    theirs = {p.data_ptr() for p in policy.model.parameters()}
    assert not any(p.data_ptr() in theirs for p in critic.parameters())


def test_under_adapters_a_critic_shares_what_is_frozen(build):
    policy = build(lora=LoraPlan(4, 8.0))._policy
    critic = ValueModel(policy)
    theirs = {p.data_ptr() for p in policy.model.parameters()}
    assert {p.data_ptr() in theirs for p in critic.parameters() if not p.requires_grad} == {True}
    assert not any(p.data_ptr() in theirs for p in critic.trainable.values())
    assert set(critic.trainable) > {"head.weight", "head.bias"}
