"""Trackers that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from areal_plugins import TrackerDescriptor
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import TrackerConformance
from areal_plugins.testing.conformance.running import run


class TestBuiltIn(TrackerConformance):
    @pytest.fixture(
        params=["tracker/jsonl", "tracker/tensorboard", mocks.TRACKER], ids=["jsonl", "tensorboard", "mock"]
    )
    def component(self, request):
        if request.param == "tracker/tensorboard":
            pytest.importorskip("tensorboardX")
        return request.param


class Plain:
    """A line of JSON a step."""

    def __init__(self, options, context):
        self.path = context.run.directory / "plain.jsonl"

    def log(self, step, metrics):
        with self.path.open("a") as file:
            file.write(json.dumps([step, *metrics.items()]) + "\n")

    def evaluation(self, step, metrics):
        self.log(step, metrics)

    def group(self, group):
        pass

    def close(self):
        pass


class Incomplete(Plain):
    def evaluation(self, step, metrics):
        if step == 0:
            raise ValueError("steps count from 1")
        super().evaluation(step, metrics)


class Exact(Plain):
    def log(self, step, metrics):
        json.dumps(metrics, allow_nan=False)
        super().log(step, metrics)


class Bound(Plain):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.thread = threading.current_thread()

    def log(self, step, metrics):
        if threading.current_thread() is not self.thread:
            raise RuntimeError("I am of another thread")
        super().log(step, metrics)


class Meddling(Plain):
    def group(self, group):
        for trajectory in group:
            trajectory.columns["tokens"] = trajectory.columns["tokens"] + 1


class Straying(Plain):
    def log(self, step, metrics):
        super().log(step, metrics)
        Path("figures.txt").write_text("0.5")


class Running(Plain):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.over = threading.Event()
        threading.Thread(target=self.over.wait, args=(1.0,)).start()


class Starting(Plain):
    def __init__(self, options, context):
        super().__init__(options, context)
        self.path.write_text("")


BROKEN = {
    "test_it_takes_a_whole_run": Incomplete,
    "test_it_takes_figures_that_are_not_finite": Exact,
    "test_it_is_told_in_another_thread": Bound,
    "test_it_changes_no_group": Meddling,
    "test_it_writes_into_the_run_directory": Straying,
    "test_what_it_was_told_is_there_once_it_is_closed": Running,
    "test_it_goes_on_after_a_resume": Starting,
}
RULES = [name for name in vars(TrackerConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    descriptor = TrackerDescriptor(
        name=cls.__name__.lower(), summary="an odd one", factory=f"{__name__}:{cls.__name__}"
    )
    return {r.test: r.cause for r in run(TrackerConformance, descriptor, only=only) if r.outcome == "failed"}


def test_a_plain_tracker_keeps_every_rule():
    assert failed(Plain) == {}


def test_there_is_a_broken_tracker_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_tracker_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
