from __future__ import annotations

from areal_core.contexts import Place, WorkerSpec
from areal_core.pipeline.pace import LEAST, Pace
from areal_core.pipeline.pool import Seat


def seat(name, role="engine"):
    return Seat(WorkerSpec(name, role, Place()))


def paced(factor=4.0, floor=1.0, seconds=10.0, times=LEAST):
    pace = Pace(factor, floor)
    for _ in range(times):
        pace.took(4, seconds)
    return pace


def test_nobody_is_late_before_enough_groups_came_back():
    assert paced(times=LEAST - 1).due(4) is None
    assert paced().due(4) == 40.0


def test_groups_of_another_size_are_judged_apart():
    assert paced().due(1) is None


def test_the_floor_is_the_least():
    assert paced(floor=100.0).due(4) == 100.0


def test_without_a_factor_nobody_is_late():
    assert paced(factor=None).due(4) is None


def test_a_few_very_long_groups_do_not_change_what_is_usual():
    pace = paced()
    for _ in range(5):
        pace.took(4, 10_000.0)
    assert pace.usual(4) == 10.0


def test_a_worker_that_takes_longer_than_its_peers_becomes_slow_once_and_recovers():
    pace, slow, fast = paced(), seat("engine-0"), seat("engine-1")
    became = []
    for _ in range(30):
        became += pace.worked(4, 50.0, [slow])
        became += pace.worked(4, 10.0, [fast])
    assert [found.name for found, _ in became] == ["engine-0"]
    assert became[0][1] >= 2.0
    assert (pace.slow(slow), pace.slow(fast)) == (True, False)
    for _ in range(30):
        pace.worked(4, 10.0, [slow])
    assert not pace.slow(slow)


def test_a_worker_alone_is_not_slow():
    pace, alone = paced(), seat("engine-0")
    assert [pace.worked(4, 90.0, [alone]) for _ in range(30)] == [[]] * 30


def test_rollout_workers_are_compared_with_rollout_workers():
    pace, host, engine = paced(), seat("rollout-0", "rollout"), seat("engine-0")
    for _ in range(30):
        pace.worked(4, 90.0, [host])
        pace.worked(4, 10.0, [engine])
    assert not pace.slow(host)
