from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pluggy
import pytest

from areal_core import ENTRY_POINT_GROUP, hookspecs
from areal_core.contexts import RunInfo
from areal_core.data import TaskRef, Trajectory, TrajectoryGroup, WeightVersion
from areal_core.hookspecs import hookimpl
from areal_core.pipeline import observers as observing
from areal_core.pipeline.observers import Observers

RUN = RunInfo("r", Path(), 0)


def hooks(*observers):
    manager = pluggy.PluginManager(ENTRY_POINT_GROUP)
    manager.add_hookspecs(hookspecs)
    for number, observer in enumerate(observers):
        manager.register(observer, name=f"plugin-{number}")
    return manager


class Published:
    def __init__(self, act=lambda version: None):
        self.seen, self.threads, self._act = [], [], act

    @hookimpl
    def areal_weights_published(self, version):
        self.threads.append(threading.get_ident())
        self._act(version)
        self.seen.append(version.step)


def group(sequence, units):
    """Of `8 * units` bytes."""
    columns = {"logprobs": np.zeros(units)}
    return TrajectoryGroup(sequence, TaskRef("sums", "train", 0), (Trajectory(0, columns, units, 1.0, "stop"),))


class Tracker:
    def __init__(self):
        self.told = []

    def log(self, step, metrics):
        self.told.append(("log", step, dict(metrics)))

    def evaluation(self, step, metrics):
        self.told.append(("evaluation", step, dict(metrics)))

    def group(self, group):
        self.told.append(("group", group))

    def close(self):
        self.told.append(("close",))


def publish(observers, *steps):
    for step in steps:
        observers.published(WeightVersion(0, step))


def test_observers_are_called_in_a_thread_of_their_own_and_in_order():
    observer = Published()
    observers = Observers(RUN, hooks(observer))
    publish(observers, *range(100))
    observers.close(30.0)
    assert observer.seen == list(range(100))
    assert set(observer.threads) != {threading.get_ident()}


def test_inline_they_are_called_at_once():
    observer = Published()
    observers = Observers(RUN, hooks(observer), inline=True)
    publish(observers, 1)
    assert observer.seen == [1]
    assert observer.threads == [threading.get_ident()]


def test_one_that_raises_is_named_and_keeps_no_other_from_hearing():
    reports = []

    def fails(version):
        raise ValueError("mine")

    broken, sound = Published(fails), Published()
    observers = Observers(RUN, hooks(sound, broken), report=lambda *args: reports.append(args), inline=True)
    publish(observers, 1, 2)
    assert sound.seen == [1, 2]
    assert reports[0] == ("plugin-1", "areal_weights_published: ValueError: mine")


def test_trackers_hear_of_steps_evaluations_and_groups_and_are_closed():
    tracker = Tracker()
    observers = Observers(RUN, trackers=[("t", tracker)])
    observers.stepped(1, {"loss": 2.0})
    observers.evaluated(1, {"a/reward": 0.5})
    observers.collected(collected := group(1, units=2))
    observers.close(30.0)
    assert tracker.told == [
        ("log", 1, {"loss": 2.0}), ("evaluation", 1, {"a/reward": 0.5}), ("group", collected), ("close",)
    ]  # fmt: skip


def test_what_a_slow_observer_cannot_take_is_counted_and_not_waited_for():
    reports, gate = [], threading.Event()
    observer = Published(lambda version: gate.wait())
    observers = Observers(RUN, hooks(observer), report=lambda *args: reports.append(args), limit=2)
    publish(observers, *range(20))
    gate.set()
    observers.close(30.0)
    lost = int(reports[-1][1].split(": ")[1].split()[0])
    assert reports[-1][0] == "observers"
    assert lost >= 16
    assert len(observer.seen) < 20


def test_calls_that_wait_hold_so_many_bytes_and_no_more(monkeypatch):
    monkeypatch.setattr(observing, "HELD", 1000)
    reports, gate, seen = [], threading.Event(), []

    class Collected:
        @hookimpl
        def areal_trajectories_collected(self, group):
            gate.wait()
            seen.append(group)

    observers = Observers(RUN, hooks(Collected()), report=lambda *args: reports.append(args))
    for sequence in range(20):
        observers.collected(group(sequence, units=50))
    gate.set()
    observers.close(30.0)
    assert reports
    assert [found.sequence for found in seen] == [0, 1, 2]


def test_one_that_never_returns_does_not_keep_the_run_from_ending():
    reports, gate = [], threading.Event()
    observers = Observers(RUN, hooks(Published(lambda version: gate.wait())), report=lambda *args: reports.append(args))
    publish(observers, 1, 2)
    observers.close(0.01)
    gate.set()
    assert "still busy" in reports[0][1]


@pytest.mark.parametrize("inline", [True, False])
def test_what_nobody_listens_to_costs_nothing(inline):
    observers = Observers(RUN, hooks(Published()), inline=inline)
    observers.started()
    observers.close(30.0)
