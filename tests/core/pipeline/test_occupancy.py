from __future__ import annotations

import pytest

from areal_core.pipeline.occupancy import LARGEST, SPARE, Occupancy


def test_without_rewards_it_is_the_engines_capacity_and_some_spare():
    occupancy = Occupancy(group_size=4)
    occupancy.add(seconds=10.0, reward_seconds=0.0)
    assert occupancy.groups(slots=16) == SPARE * 4


def test_it_is_the_same_before_anything_is_known():
    assert Occupancy(group_size=4).groups(slots=16) == SPARE * 4


def test_groups_that_wait_half_their_time_for_rewards_need_twice_as_many():
    occupancy = Occupancy(group_size=4)
    occupancy.add(seconds=10.0, reward_seconds=4 * 5.0)
    assert occupancy.groups(slots=16) == pytest.approx(SPARE * 8)


def test_however_long_rewards_take_there_is_a_limit():
    occupancy = Occupancy(group_size=1)
    occupancy.add(seconds=10.0, reward_seconds=10.0)
    assert occupancy.groups(slots=16) == SPARE * LARGEST * 16


def test_recent_groups_count_more():
    occupancy = Occupancy(group_size=1)
    for _ in range(500):
        occupancy.add(seconds=1.0, reward_seconds=0.0)
    for _ in range(500):
        occupancy.add(seconds=1.0, reward_seconds=0.75)
    assert occupancy.groups(slots=10) == pytest.approx(SPARE * 40, rel=0.01)


def test_a_part_of_a_group_is_a_group():
    assert Occupancy(group_size=8).groups(slots=1) == 1
