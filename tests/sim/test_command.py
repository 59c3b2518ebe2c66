"""`python -m areal_plugins.testing.sim`."""

from __future__ import annotations

from areal_plugins.testing.sim import runner
from areal_plugins.testing.sim.__main__ import main
from areal_plugins.testing.sim.schedule import draw
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
