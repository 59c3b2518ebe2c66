import pytest

from areal_core.contexts import OptimizerPlan
from areal_plugins.builtin.trainer.schedule import learning_rate


def rates(steps, updates=1, **changes):
    plan = OptimizerPlan(build=lambda context: None, learning_rate=2.0, **changes)
    return [learning_rate(plan, step, updates) for step in steps]


def test_warm_up_rises_to_the_full_rate_and_does_not_begin_at_zero():
    assert rates(range(5), warmup_steps=4) == [0.5, 1.0, 1.5, 2.0, 2.0]


def test_linear_decay_reaches_its_end_after_the_last_step():
    assert rates(range(5), schedule="linear", total_steps=4) == [2.0, 1.5, 1.0, 0.5, 0.0]


def test_cosine_decay_is_half_way_at_half_time():
    assert rates([0, 5, 10], schedule="cosine", total_steps=10) == pytest.approx([2.0, 1.0, 0.0])


def test_decay_ends_at_the_minimum_and_stays_there():
    assert rates([10, 99], schedule="linear", total_steps=10, min_ratio=0.1) == pytest.approx([0.2, 0.2])


def test_decay_begins_after_the_warm_up():
    assert rates([1, 2, 4, 6], schedule="linear", warmup_steps=2, total_steps=6) == [2.0, 2.0, 1.0, 0.0]


def test_optimizer_steps_are_counted_where_a_batch_has_several():
    assert rates([0, 4, 8], updates=4, schedule="linear", total_steps=2) == [2.0, 1.0, 0.0]


def test_stale_batches_take_smaller_steps():
    plan = OptimizerPlan(build=lambda context: None, learning_rate=2.0, lag_decay=0.5)
    assert learning_rate(plan, 0, mean_lag=2.0) == 1.0
