from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from areal_core.pipeline.events import Event
from areal_core.pipeline.run import EvaluationReport, Scores, StepReport
from areal_plugins.cli import progress
from areal_plugins.cli.live import LiveDisplay
from areal_plugins.cli.progress import Pace, PlainDisplay, count, duration, open_display, step_line

METRICS = {"loss": 0.123456, "reward": 0.5, "lag/mean": 1.25, "sample_utilization": 0.98}
TIMINGS = {
    "wait": 0.5,
    "train": 1.5,
    "wall": 2.0,
    "generated_per_second": 12345.0,
    "trained_per_second": 950.4,
    "utilization": 0.876,
}
SCORES = {"math": Scores(0.5, 0.5, 0.04, 128, 3, 12.0, 0.1)}


def report(step=3, steps=10, stage="rl", **timings):
    return StepReport(step, steps, stage, METRICS, {**TIMINGS, **timings})


def shown(*calls):
    """What a plain display prints when these are made."""
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for call in calls:
        call(display)
    return stream.getvalue().splitlines()


def test_a_step_is_one_line_with_what_people_watch():
    assert step_line(report(), left=14.0) == (
        "step 3/10 rl  loss 0.1235  reward 0.500  lag 1.2  generates 12.3k tok/s  trains 950 tok/s  busy 88%  used 98%"
        "  left 14s"
    )


def test_figures_that_a_step_does_not_have_are_left_out():
    assert step_line(StepReport(1, 2, "s", {}, {}), left=0.0) == "step 1/2 s  left 0s"


def test_plain_lines_about_steps_are_paced(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    display = PlainDisplay(stream)
    for step in range(1, 11):
        now[0] += 0.5
        display.stepped(report(step))
    steps = [int(line.split()[1].partition("/")[0]) for line in stream.getvalue().splitlines()]
    assert steps == [1, 5, 9, 10]


def test_evaluations_phases_and_troubles_are_always_shown():
    lines = shown(
        lambda display: display.phase("starting workers"),
        lambda display: display.evaluated(EvaluationReport(20, SCORES, ("0.18", "0.20"))),
        lambda display: display.happened(Event("worker-lost", "engine-0: killed", 20, "error")),
    )
    assert lines == [
        "[starting workers]",
        "held-out accuracy after step 20: math 0.500 ± 0.040 (125 tasks)",
        "error: engine-0: killed",
    ]


def test_small_events_are_not_shown():
    assert shown(lambda display: display.happened(Event("dropped", "2 groups dropped", 20, "info"))) == []


def test_why_a_run_fails_is_left_to_its_command_to_say():
    assert shown(lambda display: display.happened(Event("run-failed", "engine-0: killed", 20, "error"))) == []


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0s"), (59.4, "59s"), (200, "3m20s"), (7500, "2h05m")])
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.0, "0"), (950.4, "950"), (12345.0, "12.3k"), (2.5e6, "2.5M")])
def test_counts_read_well(value, text):
    assert count(value) == text


def test_the_time_left_follows_the_pace_of_the_stage_and_not_its_start():
    pace = Pace()
    for step in range(1, 6):
        pace.stepped(report(step, wait=0.2, train=0.8, wall=40.0 if step == 1 else 1.0))
    assert pace.left(report(5)) == pytest.approx(5.0)
    pace.stepped(report(6, stage="next", train=2.5, wall=90.0))
    assert pace.left(report(6)) == pytest.approx(12.0)


def test_output_that_is_no_terminal_gets_plain_lines():
    assert isinstance(open_display(io.StringIO()), PlainDisplay)


def test_a_terminal_sees_the_bar_the_figures_and_what_happened():
    stream = io.StringIO()
    display = LiveDisplay(stream, Console(file=stream, force_terminal=True, width=160))
    display.phase("starting workers")
    display.stepped(report())
    display.evaluated(EvaluationReport(20, SCORES, ("0.18", "0.20")))
    display.happened(Event("worker-lost", "engine-0: [killed]", 20, "error"))
    display.close()
    text = stream.getvalue()
    parts = ("3/10", "reward 0.500", "left 14s", "math 0.500", "engine-0: [killed]")
    assert [part for part in parts if part not in text] == []


def test_lines_that_nobody_reads_any_more_are_lost_and_harm_nothing():
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    display = PlainDisplay(stream)
    os.close(reading)
    display.phase("starting workers")
    display.phase("stage rl")
    display.close()
    stream.close()
