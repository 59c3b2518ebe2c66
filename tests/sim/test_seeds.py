"""Seeds of the simulation: each a whole experiment with faults, watched at every event."""

from __future__ import annotations

import pytest

from areal_plugins.testing.sim import runner
from areal_plugins.testing.sim.schedule import draw
from areal_plugins.testing.sim.world import play

SEEDS = 300
JOBS = 2


def test_every_invariant_holds_at_every_event_of_every_seed(capsys):
    assert runner.many(0, SEEDS, JOBS) == 0, capsys.readouterr().out


@pytest.mark.parametrize("seed", [1096, 2008, 3251, 8915, 10389, 10672])
def test_seeds_beyond_these_that_once_broke_hold(seed):
    assert play(draw(seed)).broken is None


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_a_seed_is_the_same_experiment_every_time(seed):
    assert play(draw(seed), trace=None).trace == play(draw(seed), trace=None).trace


def test_seeds_differ_in_what_they_go_through():
    seen = [play(draw(seed)) for seed in range(20)]
    assert {end for outcome in seen for end in outcome.ends} >= {"done", "killed"}
    assert sum(outcome.seen["worker-lost"] for outcome in seen) > 5
    assert sum(outcome.seen["group-retried"] for outcome in seen) > 1
