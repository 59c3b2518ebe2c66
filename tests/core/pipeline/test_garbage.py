from __future__ import annotations

import gc
import weakref

import pytest

from areal_core.pipeline.garbage import THRESHOLDS, search_recent, seldom_searched


class Node:
    """Part of a cycle."""

    def __init__(self):
        self.itself = self


def fail():
    with seldom_searched():
        assert gc.get_threshold() == THRESHOLDS
        raise KeyError("failed")


def test_it_is_searched_seldom_for_as_long_as_the_run_goes_on():
    before = gc.get_threshold()
    with pytest.raises(KeyError, match="failed"):
        fail()
    assert gc.get_threshold() == before


def test_what_was_made_lately_is_searched():
    with seldom_searched():
        made = weakref.ref(Node())
        assert made() is not None
        search_recent()
        assert made() is None


def test_what_a_failure_left_is_gone_once_the_run_has_gone_back(scene):
    made = []

    async def meddle(controller):
        run = controller._run
        await run.condition.until(lambda: run.events.step >= 10)
        made.append(weakref.ref(Node()))
        controller._crew.trainer.ranks[0].kill()
        await run.condition.until(lambda: run.events.step >= 12)
        made.append(made[0]())

    scene.run("checkpoint={every: 4, keep: 100}", meddle=meddle)
    assert [event.kind for event in scene.log.events].count("trainer-restarted") == 1
    assert made[1] is None
