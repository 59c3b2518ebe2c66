from __future__ import annotations

import numpy as np
import pytest

from areal_core.data import NO_VERSION, Batch, TaskRef, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.pipeline.events import Events
from areal_core.pipeline.metrics import Alarm, Tally, Totals, batch_metrics, note


def trajectory(versions, reward=0.0, finish="stop", scores=None, incarnation=0):
    """Two tokens of prompt, then one token a version; None is a token that no policy drew."""
    drawn = [NO_VERSION if step is None else WeightVersion(incarnation, step).code for step in versions]
    columns = {
        "tokens": np.arange(2 + len(drawn), dtype=np.int32),
        "mask": np.array([0, 0, *(step is not None for step in versions)], dtype=np.uint8),
        "logprobs": np.zeros(2 + len(drawn), dtype=np.float32),
        "versions": np.array([NO_VERSION, NO_VERSION, *drawn], dtype=np.int64),
    }
    return Trajectory(0, columns, 2, reward, finish, scores=scores or {})


def group(*trajectories, environment="a", sequence=0):
    return TrajectoryGroup(sequence, TaskRef(environment, "train", sequence), trajectories)


def test_rewards_are_in_all_and_by_environment():
    batch = Batch(0, (group(trajectory([0], 1.0), trajectory([0], 0.0)), group(trajectory([0], 0.2), environment="b")))
    figures = batch_metrics(batch)
    assert figures["reward"] == pytest.approx(0.4)
    assert (figures["reward/a"], figures["reward/b"]) == (0.5, 0.2)


def test_lag_is_over_the_drawn_tokens():
    figures = batch_metrics(Batch(7, (group(trajectory([7, 7, 5]), trajectory([None, 4])),)))
    assert figures["lag/mean"] == (0 + 0 + 2 + 3) / 4
    assert figures["lag/max"] == 3


def test_lag_counts_steps_over_incarnations():
    figures = batch_metrics(Batch(7, (group(trajectory([6], incarnation=3)),)))
    assert figures["lag/max"] == 1


def test_a_batch_that_no_policy_drew_has_no_lag():
    figures = batch_metrics(Batch(7, (group(trajectory([None])),)))
    assert (figures["lag/mean"], figures["lag/max"]) == (0.0, 0.0)


def test_lengths_and_truncation():
    figures = batch_metrics(Batch(0, (group(trajectory([0, 0, 0], finish="length"), trajectory([0])),)))
    assert (figures["length/mean"], figures["length/max"], figures["truncated"]) == (2.0, 3.0, 0.5)


def test_parts_of_rewards_are_over_the_trajectories_that_have_them():
    figures = batch_metrics(Batch(0, (group(trajectory([0], scores={"format": 1.0}), trajectory([0])),)))
    assert figures["score/format"] == 1.0


def test_drops_are_counted_by_cause_and_length_and_then_forgotten():
    told = []
    tally, events = Tally(), Events(told.append)
    tally.drop("stale", 2, group(trajectory([0, 0, 0]), trajectory([0])))
    tally.drop("stale", 2, group(trajectory([0] * 9), trajectory([0])))
    tally.drop("failed", 2)
    assert tally.flush(events) == {"dropped/stale": 4.0, "dropped/failed": 2.0}
    assert told[0].data == {"cause": "stale", "groups": 2, "trajectories": 4, "units": 14, "longest": 9}
    assert tally.flush(events) == {}


def test_sample_utilization_is_trained_over_generated():
    tally = Tally()
    assert tally.totals.utilization == 1.0
    tally.collected(group(trajectory([0] * 8)))
    tally.totals.trained += 6
    assert tally.totals.utilization == 0.75


def test_a_copy_does_not_change_with_what_it_was_copied_from():
    tally = Tally()
    tally.drop("stale", 2)
    copy = tally.copy()
    tally.drop("stale", 2)
    tally.totals.trained += 1
    assert (copy.dropped["stale"].groups, copy.totals.trained) == (1, 0)


def test_going_back_counts_what_is_given_up_as_one_cause_and_what_the_checkpoint_had_dropped_as_it_had():
    before = Tally(Totals(generated=10, trained=4))
    before.drop("stale", 2)
    tally = before.copy()
    tally.totals = Totals(generated=30, trained=20)
    tally.drop("failed", 3)
    lost = tally.rewind(before, "trainer-lost", told=False)
    assert (lost.groups, lost.trajectories) == (1, 3)
    assert {cause: dropped.trajectories for cause, dropped in tally.dropped.items()} == {"stale": 2, "trainer-lost": 3}
    assert (tally.totals.generated, tally.totals.trained) == (30, 4)


def test_drops_of_a_step_that_is_forgotten_are_told_of_again():
    before, tally = Tally(), Tally()
    before.drop("stale", 2)
    tally.drop("failed", 3)
    assert tally.rewind(before, "trainer-lost", told=True).trajectories == 3
    assert {cause: dropped.trajectories for cause, dropped in tally.dropped.items()} == {"stale": 2, "trainer-lost": 3}


@pytest.mark.parametrize(
    ("metrics", "kinds"),
    [
        ({"loss": 1.0}, []),
        ({"clipped": 0.0, "skipped": 0.0}, []),
        ({"clipped": 1.0, "grad_norm": 9.0}, ["clipped"]),
    ],
)
def test_steps_that_were_clipped_are_noted(metrics, kinds):
    told = []
    note(metrics, Events(told.append))
    assert [event.kind for event in told] == kinds


def watch(alarm, *values):
    for value in values:
        alarm.watch({"figure": value})


def test_an_alarm_sounds_once_for_a_figure_that_stays_high():
    told = []
    watch(Alarm(Events(told.append), "figure", 1.0, "too high", "warning"), *[2.0] * 50)
    assert [event.message for event in told] == ["figure is 2 lately, above 1: too high"]


def test_an_alarm_sounds_again_after_the_figure_was_low():
    told = []
    watch(Alarm(Events(told.append), "figure", 1.0, "too high", "warning"), *[2.0] * 50, *[0.0] * 50, *[2.0] * 50)
    assert len(told) == 2


def test_one_high_figure_among_low_ones_is_no_alarm():
    told = []
    watch(Alarm(Events(told.append), "figure", 1.0, "too high", "warning"), *[0.1] * 50, 5.0, *[0.1] * 50)
    assert told == []


def test_an_alarm_ignores_steps_without_its_figure():
    told = []
    Alarm(Events(told.append), "figure", 1.0, "too high", "warning").watch({"another": 9.0})
    assert told == []
