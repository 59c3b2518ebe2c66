"""`python -m areal_plugins.testing.sim`."""

from __future__ import annotations

from attrs import evolve

from areal_plugins.testing.sim import runner
from areal_plugins.testing.sim.__main__ import main
from areal_plugins.testing.sim.schedule import draw
from areal_plugins.testing.sim.setting import Memory
from areal_plugins.testing.sim.watch import Broken
from areal_plugins.testing.sim.world import Outcome


def test_one_seed_is_replayed(capsys):
    assert main(["--seed", "3"]) == 0
    assert "every invariant held" in capsys.readouterr().out


def test_everything_that_happened_is_told_on_request(capsys):
    main(["--seed", "3", "--trace"])
    assert "starting workers" in capsys.readouterr().out


def test_a_broken_invariant_is_told_with_the_line_that_replays_it():
    outcome = Outcome(7, 2, 3, 60.0, 900, ("killed",), Broken("admission", "9 of 8", 12.5), ("something happened",))
    lines = runner.report(outcome).splitlines()
    assert lines[0] == "something happened"
    assert lines[-1] == "tox run -e sim -- --seed 7"


def test_schedules_depend_on_their_seed_alone():
    assert draw(5) == draw(5)
    assert draw(5) != draw(6)


def test_a_long_run_at_the_rates_of_faults_that_users_report_ends_by_itself_with_flat_memory(capsys):
    assert main(["--hours", "1.5"]) == 0
    assert "memory is flat" in capsys.readouterr().out


def test_memory_that_grows_is_not_flat():
    before = Memory(3600.0, 50, 60, 50_000)
    assert runner.flat(before, evolve(before, objects=51_000))
    assert not runner.flat(before, evolve(before, objects=60_000))
    assert not runner.flat(before, evolve(before, mib=80))
