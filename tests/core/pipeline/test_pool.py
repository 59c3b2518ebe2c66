from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.contexts import Place, WorkerSpec
from areal_core.pipeline.condition import Condition
from areal_core.pipeline.pool import Pool, Seat


def pool_of(count: int) -> Pool:
    pool = Pool([spec(index) for index in range(count)], Condition())
    for seat in pool.seats:
        seat.held, seat.ready = object(), True
    return pool


def spec(index: int) -> WorkerSpec:
    return WorkerSpec(f"engine-{index}", "engine", Place())


def slowly(pool: Pool) -> Seat | None:
    return min(pool.ready, key=lambda seat: seat.load, default=None)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["take", "give", "lose", "come", "join", "leave"]), st.integers(0, 30)), max_size=60
)


@given(st.integers(1, 6), ACTIONS)
def test_the_lightest_is_the_first_of_those_that_carry_least(count, actions):
    pool, carried = pool_of(count), []
    for action, number in actions:
        seat = pool.seats[number % len(pool.seats)] if pool.seats else None
        if action == "take" and (lightest := slowly(pool)):
            lightest.take(1 + number % 3)
            carried.append((lightest, 1 + number % 3))
        elif action == "give" and carried:
            holder, load = carried.pop(number % len(carried))
            holder.free(load)
        elif action in ("lose", "come") and seat:
            seat.ready = action == "come"
        elif action == "join":
            pool.add(Seat(spec(100 + number), held=object(), ready=True))
        elif action == "leave" and seat:
            pool.remove(seat)
        if slowly(pool) is None:
            with pytest.raises(ValueError, match="ready"):
                pool.lightest()
        else:
            assert pool.lightest() is slowly(pool)


def test_a_ranking_does_not_grow_with_the_choices_that_were_made():
    pool, taken, random = pool_of(8), [], Random(1)
    for _ in range(2000):
        while len(taken) < 32:
            taken.append(pool.lightest())
            taken[-1].take(8)
        taken.pop(random.randrange(len(taken))).free(8)
    assert len(pool._ranking._heap) <= 2 * len(pool.seats)


def test_thousands_of_choices_look_at_few_seats():
    class Counted(Seat):
        looks = 0

        @property
        def name(self):
            return self.spec.name

        def __getattribute__(self, attribute):
            if attribute == "load":
                Counted.looks += 1
            return super().__getattribute__(attribute)

    pool = Pool([], Condition())
    for index in range(1000):
        pool.add(Counted(spec(index), held=object(), ready=True))
    Counted.looks = 0
    for _ in range(1000):
        pool.lightest().take(8)
    assert Counted.looks < 20_000
