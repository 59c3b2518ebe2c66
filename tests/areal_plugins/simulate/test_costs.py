from __future__ import annotations

import pytest
from attrs import evolve

from areal_plugins.simulate.costs import EngineCosts, Reach, TrainerCosts, UpdateCosts
from areal_plugins.simulate.hardware import PROFILES
from areal_plugins.simulate.shape import KNOWN, Shape

FULL = Reach(prefill=1, decode=1, train=1, link=1, memory=1, step=0)
H800, SHAPE = PROFILES["h800"], Shape(1e9, 10, 1000, 200)


def test_a_small_batch_takes_the_time_to_read_the_weights():
    costs = EngineCosts(H800, SHAPE, FULL, 1)
    assert costs.step(1) == pytest.approx(2e9 / 3.35e12)
    assert costs.step(2) == costs.step(1)


def test_a_batch_beyond_the_ridge_takes_the_time_of_its_operations():
    assert EngineCosts(H800, SHAPE, FULL, 1).step(5000) == pytest.approx(2e9 * 5000 / 989e12)


def test_attention_takes_the_time_to_read_keys_and_values():
    assert EngineCosts(H800, SHAPE, FULL, 1).slope == pytest.approx(2 * 10 * 200 * 2 / 3.35e12)


def test_two_devices_halve_the_reading_and_add_collectives():
    one, two = (EngineCosts(H800, SHAPE, FULL, devices).step(1) for devices in (1, 2))
    assert one / 2 < two < one / 2 + 21 * 11e-6


def test_the_cache_has_the_memory_that_weights_leave():
    assert EngineCosts(H800, SHAPE, FULL, 1).capacity == int((80e9 - 2e9) // SHAPE.kv_bytes)


def test_training_takes_six_operations_a_parameter_and_token_and_attention():
    seconds = TrainerCosts(H800, SHAPE, FULL, 1).train([100, 300])
    assert seconds == pytest.approx((6e9 * 400 + 6 * 10 * 1000 * (100**2 + 300**2)) / 989e12)


def test_a_pass_without_gradients_is_a_third_of_a_step():
    plain = TrainerCosts(H800, SHAPE, FULL, 1)
    assert evolve(plain, forwards=1).train([100]) == pytest.approx(plain.train([100]) * 4 / 3)
    assert evolve(plain, forwards=1, recompute=True).train([100]) == pytest.approx(plain.train([100]) * 5 / 3)


def test_weights_cross_the_network_once_or_the_disk_once_an_engine():
    update = UpdateCosts(H800, SHAPE, FULL, trainers=8, engines=24)
    assert update.prepare() == pytest.approx(2e9 / 50e9)
    assert evolve(update, disk=1e9).prepare() == pytest.approx(2.0 * 24)


@pytest.mark.parametrize("name", KNOWN)
def test_known_models_have_the_parameters_that_their_names_say(name):
    said = next(part for part in name.split("-")[::-1] if part[-1] in "bm" and part[0].isdigit())
    count = float(said[:-1]) * (1e9 if said[-1] == "b" else 1e6)
    assert KNOWN[name].parameters == pytest.approx(count, rel=0.2)
