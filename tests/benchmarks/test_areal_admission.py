"""AReaL's way to count groups, beside ours."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from areal_core.pipeline.staleness import Bound, Ledger

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from _areal_admission import Lenient

BOUND = Bound(batch_size=2, group_size=1, max_staleness=1, first_step=0, last_step=10)


def training(kind: type[Ledger]) -> Ledger:
    """All that the bound has room for was admitted, the first batch is trained on, and one group more is finished."""
    ledger = kind(BOUND, 0)
    for sequence in range(4):
        assert ledger.room()
        ledger.admit(sequence)
    assert not ledger.room()
    ledger.finish(0, 0)
    ledger.finish(1, 0)
    assert ledger.take() == [0, 1]
    ledger.finish(2, 0)
    return ledger


@pytest.mark.parametrize(("kind", "room"), [(Ledger, False), (Lenient, True)])
def test_a_group_that_is_finished_during_a_step_makes_room_only_there(kind, room):
    assert training(kind).room() is room


def test_it_counts_once_the_trainer_waits_again():
    ledger = training(Lenient)
    ledger.commit(1)
    ledger.admit(4)
    ledger.admit(5)
    assert ledger.running == 3
    assert not ledger.room()


def test_a_batch_is_whatever_is_finished_however_old():
    ledger = training(Lenient)
    ledger.commit(1)
    ledger.admit(4)
    ledger.finish(4, 1)
    assert ledger.ready()
    assert ledger.take() == [2, 4]
    ledger.commit(2)
    assert ledger.expire() == []
