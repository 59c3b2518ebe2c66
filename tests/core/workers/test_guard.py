from __future__ import annotations

import asyncio

import pytest

from areal_core.workers import memory
from areal_core.workers.guard import CALM, Guard


class Engine:
    """Its memory is what `shares` says next, the last one for ever."""

    def __init__(self, *shares):
        self.shares, self.relieved, self.widths = list(shares), 0, []

    def memory(self):
        return self.shares.pop(0) if len(self.shares) > 1 else self.shares[0]

    def relieve(self):
        self.relieved += 1

    def resize(self, max_concurrent):
        self.widths.append(max_concurrent)


def looks(guard, times=1):
    """What it has to say after so many looks."""

    async def main():
        notes = []
        for _ in range(times + 1):
            notes += guard.report().notes
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return notes

    return asyncio.run(main())


def test_a_worker_with_room_is_left_alone():
    engine = Engine(0.5)
    assert looks(Guard(engine, 0.9, host=False, width=16), 3) == []
    assert (engine.relieved, engine.widths) == (0, [])


def test_over_the_limit_caches_are_emptied_and_that_may_be_enough():
    engine = Engine(0.95, 0.4)
    (note,) = looks(Guard(engine, 0.9, host=False, width=16))
    assert (engine.relieved, engine.widths) == (1, [])
    assert (note.kind, note.figures) == ("memory-pressure", {"before": 0.95, "after": 0.4})


def test_where_that_does_not_help_the_engine_works_on_half_as_much_at_once():
    engine = Engine(0.95)
    notes = looks(Guard(engine, 0.9, host=False, width=16), 6)
    assert engine.widths == [8, 4, 2, 1]
    assert [note.figures.get("concurrent") for note in notes] == [8.0, 4.0, 2.0, 1.0]


def test_it_slowly_returns_to_what_it_could_do_once_there_is_room():
    engine = Engine(0.95, 0.95, 0.3)
    notes = looks(Guard(engine, 0.9, host=False, width=16), 1 + 4 * CALM)
    assert engine.widths == [8, 10, 12, 14, 16]
    assert [note.kind for note in notes] == ["memory-pressure", "memory-restored"]


def test_room_that_is_scarce_does_not_widen_it_again():
    engine = Engine(0.95, 0.95, 0.85)
    looks(Guard(engine, 0.9, host=False, width=16), 30)
    assert engine.widths == [8]


def test_a_component_that_knows_nothing_of_its_memory_is_judged_by_the_machines(monkeypatch):
    monkeypatch.setattr(memory, "share", lambda: 0.97)
    assert [note.kind for note in looks(Guard(object(), 0.9, host=True))] == ["memory-pressure"]
    assert looks(Guard(object(), 0.9, host=False), 3) == []


def test_a_worker_that_can_do_no_more_is_left_alone_for_a_while():
    engine = Engine(0.95)
    looks(Guard(engine, 0.9, host=False), 2 * CALM + 1)
    assert engine.relieved == 2


def test_without_a_limit_nothing_is_done():
    engine = Engine(0.99)
    assert looks(Guard(engine, None, host=True, width=16), 3) == []
    assert engine.relieved == 0


def test_what_making_room_raises_reaches_whoever_asks():
    engine = Engine(0.95)
    engine.relieve = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        looks(Guard(engine, 0.9, host=False), 2)


def write(folder, **files):
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def test_memory_of_the_machine_counts_what_is_not_available(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemFree: 10 kB\nMemAvailable:  250 kB\n")
    assert memory.share(tmp_path, tmp_path) == 0.75


def test_memory_of_a_control_group_counts_without_caches_where_it_is_fuller(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemAvailable:  900 kB\n")
    write(tmp_path, memory_max="1000\n", memory_current="900\n", memory_stat="anon 700\ninactive_file 100\n")
    assert memory.share(tmp_path, tmp_path) == 0.8


def test_memory_of_a_control_group_without_a_limit_is_the_machines(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:  1000 kB\nMemAvailable:  900 kB\n")
    write(tmp_path, memory_max="max\n", memory_current="900\n")
    assert memory.share(tmp_path, tmp_path) == pytest.approx(0.1)


def test_memory_is_unknown_where_the_system_does_not_say(tmp_path):
    assert memory.share(tmp_path, tmp_path) is None
