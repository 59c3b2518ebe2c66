import pytest

from areal_plugins.builtin.trainer.loss_scale import LossScale


@pytest.mark.parametrize("amp", [{}, {"enabled": False, "dtype": "fp16"}, {"enabled": True, "dtype": "bf16"}])
def test_only_float16_is_scaled(amp):
    assert LossScale.of(amp).value == 1.0


def test_a_constant_never_moves():
    scale = LossScale.of({"enabled": True, "dtype": "fp16", "loss_scale": 128.0})
    scale.update(finite=False)
    assert scale.value == 128.0
    assert not scale.dynamic


def test_an_overflow_halves_a_dynamic_scale():
    scale = LossScale.of({"enabled": True, "dtype": "fp16", "loss_scale": "dynamic"})
    scale.update(finite=False)
    assert scale.value == 2.0**15


def test_many_good_steps_in_a_row_double_it():
    scale = LossScale(value=4.0, dynamic=True)
    for _ in range(1999):
        scale.update(finite=True)
    assert scale.value == 4.0
    scale.update(finite=True)
    assert scale.value == 8.0


def test_an_overflow_begins_the_count_anew():
    scale = LossScale(value=4.0, dynamic=True, good=1999)
    scale.update(finite=False)
    scale.update(finite=True)
    assert scale.value == 2.0
