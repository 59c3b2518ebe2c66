"""What a simulated run may fail of: of what was done to it, and of nothing else."""

from __future__ import annotations

import pytest
from attrs import evolve

from areal_core.errors import Remote, RemoteError, RunFailed, WorkerLost
from areal_core.pipeline.dispatch import TooManyFailed
from areal_core.pipeline.events import Event
from areal_plugins.testing.sim.injuries import Injuries
from areal_plugins.testing.sim.schedule import Schedule

SCHEDULE = Schedule(0, {"supervision": {"max_restarts": 1, "max_failed_share": 0.1}})


@pytest.fixture
def injuries():
    return Injuries(SCHEDULE)


def lost(worker, reason="killed"):
    return Event("worker-lost", "", 0, data={"worker": worker, "reason": reason})


def failure(cause):
    failed = RunFailed(str(cause))
    failed.__cause__ = cause
    return failed


def raised(worker, method, text="injected: {} raise"):
    return failure(RemoteError(worker, method, Remote("RuntimeError", text.format(method))))


def excuse(injuries, failed, *, started=True, last=False, alone=True):
    return injuries.excuse(failed, started, last, alone)


def test_a_worker_to_which_nothing_was_done_is_not_lost(injuries):
    assert "nothing was done" in injuries.judge(lost("engine-0"))


def test_one_injury_explains_one_loss(injuries):
    injuries.add("engine-0")
    assert not injuries.judge(lost("engine-0"))
    assert injuries.judge(lost("engine-0"))


def test_another_workers_injury_explains_nothing(injuries):
    injuries.add("engine-1")
    assert injuries.judge(lost("engine-0"))


def test_a_rollout_that_raises_costs_no_worker(injuries):
    injuries.add("rollout-0", "run_group")
    assert injuries.judge(lost("rollout-0"))


def test_any_rank_is_the_trainer(injuries):
    injuries.add("trainer-1")
    assert not injuries.judge(lost("trainer"))


def test_a_clock_that_jumps_makes_workers_hang_but_kills_none(injuries):
    injuries.jumped()
    assert not injuries.judge(lost("rollout-0", "hung: it was not back"))
    assert injuries.judge(lost("rollout-0", "exit code 1"))


def test_a_group_fails_of_a_fault_alone(injuries):
    failed = Event(
        "group-failed", "", 0, data={"error": "rollout-0: run_group: RuntimeError: injected: run_group raise"}
    )
    assert not injuries.judge(failed)
    assert injuries.judge(evolve(failed, data={"error": "KeyError: 'math'"}))


def test_the_last_worker_may_end_a_run_once_its_restarts_are_used_up(injuries):
    failed = failure(WorkerLost("engine-0", "killed"))
    for restarts in range(2):
        assert not excuse(injuries, failed), restarts
        injuries.add("engine-0")
        injuries.judge(lost("engine-0"))
    assert excuse(injuries, failed)
    assert not excuse(injuries, failed, alone=False)


def test_before_they_serve_only_hurt_workers_may_end_a_run(injuries):
    failed = failure(WorkerLost("engine-0", "killed"))
    injuries.add("engine-1")
    assert not excuse(injuries, failed, started=False)
    injuries.add("engine-0")
    assert excuse(injuries, failed, started=False)


def test_too_many_groups_must_really_have_failed(injuries):
    cause = TooManyFailed(6, WorkerLost("rollout-0", "killed"))
    assert not excuse(injuries, failure(cause))
    for _ in range(6):
        injuries.judge(Event("group-failed", "", 0, data={"error": "injected: run_group raise"}))
    assert excuse(injuries, failure(cause))


@pytest.mark.parametrize(
    ("method", "last", "may"),
    [
        ("train", False, False),
        ("release", True, False),
        ("save_state", False, False),
        ("save_state", True, True),
        ("commit", True, False),
    ],
)
def test_what_a_call_that_raises_may_end(injuries, method, last, may):
    assert excuse(injuries, raised("trainer-0", method), last=last) is may


def test_an_error_that_nobody_injected_ends_no_run(injuries):
    assert not excuse(injuries, raised("trainer-0", "save_state", "shapes differ"), last=True)


def test_a_version_that_the_only_engine_cannot_fetch_three_times_may_end_a_run(injuries):
    for tries in range(3):
        assert not excuse(injuries, raised("engine-0", "prepare")), tries
        injuries.add("engine-0", "prepare")
    assert excuse(injuries, raised("engine-0", "prepare"))
    assert not excuse(injuries, raised("engine-0", "prepare"), alone=False)


def test_in_a_debug_run_an_engine_that_joins_may_end_it():
    injuries = Injuries(evolve(SCHEDULE, debug=True))
    assert not excuse(injuries, raised("engine-0", "commit"))
    injuries.add("engine-0", "commit", joining=True)
    assert excuse(injuries, raised("engine-0", "commit"))


def test_a_calm_run_never_fails():
    injuries = Injuries(evolve(SCHEDULE, calm=True))
    assert not excuse(injuries, raised("trainer-0", "save_state"), last=True)
