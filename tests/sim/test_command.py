"""`python -m areal_plugins.testing.sim`."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

from attrs import evolve

from areal_plugins.testing.sim import runner, world
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


class _Here:
    """Runs in this process what a pool of processes would."""

    map = staticmethod(map)

    def shutdown(self, wait: bool, cancel_futures: bool = False) -> None:
        self.down = True


def _with_broken(monkeypatch, *seeds):
    def chunk(first, end):
        return [
            Outcome(seed, 1, 3, 60.0, 900, ("done",), Broken("admission", "9 of 8", 1.0) if seed in seeds else None)
            for seed in range(first, min(first + runner.CHUNK, end))
        ]

    monkeypatch.setattr(runner, "_chunk", chunk)
    monkeypatch.setattr(runner, "_pool", lambda jobs: nullcontext(_Here()))


def test_seeds_after_a_broken_one_are_played_and_all_broken_ones_are_named(capsys, monkeypatch):
    _with_broken(monkeypatch, 4, 33)
    assert main(["--seeds", "50"]) == 1
    out = capsys.readouterr().out
    assert "tox run -e sim -- --seed 4\n" in out
    assert "tox run -e sim -- --seed 33\n" in out
    assert out.splitlines()[-1].startswith("50 of 50 seeds")
    assert "BROKEN by seeds 4, 33 " in out.splitlines()[-1]


def test_many_broken_seeds_end_it(capsys, monkeypatch):
    _with_broken(monkeypatch, *range(100))
    assert main(["--seeds", "500"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("10 of 500 seeds")


def test_a_seed_that_raises_is_told_like_a_broken_invariant(monkeypatch):
    monkeypatch.setattr(world.World, "_live_on", lambda self: 1 / 0)
    broken = world.play(draw(3)).broken
    assert broken is not None
    assert "ZeroDivisionError" in broken.text


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


def test_a_run_in_which_everybody_waits_for_somebody_else_is_broken_and_ends(monkeypatch):
    async def wait(life):
        await asyncio.Event().wait()

    monkeypatch.setattr(world._Life, "_main", wait)
    broken = world.play(evolve(draw(3), mishaps=(), kills=())).broken
    assert broken is not None
    assert broken.invariant == "progress"
    assert "everybody waits for somebody else" in broken.text
