"""What was trained on is let go of."""

from __future__ import annotations

import gc

import pytest

from areal_core.data import TrajectoryGroup


def living() -> int:
    gc.collect()
    return sum(type(thing) is TrajectoryGroup for thing in gc.get_objects())


@pytest.mark.parametrize("on_stale", ["wait", "drop"])
def test_of_many_groups_no_more_are_alive_than_the_bound_lets_wait(scene, on_stale):
    alive, before = [], living()

    def count(step: int) -> None:
        if step % 5 == 0:  # to look at every object takes a while
            alive.append(living() - before)

    scene.run(
        "training.max_steps=40", f"pipeline={{max_staleness: 2, on_stale: {on_stale}}}", log=type(scene.log)(count)
    )
    groups_a_batch, ahead = 4, 3
    assert 0 < max(alive) <= groups_a_batch * (ahead + 1)
