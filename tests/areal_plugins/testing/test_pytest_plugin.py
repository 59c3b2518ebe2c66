"""The fixtures, as a third party uses them: this file is its plugin as well as its tests."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from areal_core.manager import HEAVY
from areal_plugins import ArealError, RewardDescriptor, hookimpl
from areal_plugins.data import Sample, Score


class Shortness:
    async def score(self, sample: Sample) -> Score:
        return Score(1.0 / (1 + len(sample.answer)))


class Never:
    async def score(self, sample: Sample) -> Score:
        await asyncio.Event().wait()
        return Score(0.0)


def make(options, context):
    return Shortness()


def make_never(options, context):
    return Never()


@hookimpl
def areal_rewards():
    return (
        RewardDescriptor(name="shortness", summary="the shorter, the better", factory=f"{__name__}:make"),
        RewardDescriptor(name="never", summary="hangs", factory=f"{__name__}:make_never"),
    )


MINE = sys.modules[__name__]


def with_reward(name):
    return {"environments": [{"type": "mock", "reward": name}]}


def test_mocks_alone_run_to_the_end(areal_run):
    result = areal_run()
    assert result.outcome == "done"
    assert [line["step"] for line in result.metrics] == [1, 2, 3]
    assert len(result.trajectories) == 6


def test_a_plugin_runs_in_a_pipeline_of_mocks(areal_run):
    result = areal_run(with_reward("shortness"), plugins=[MINE])
    assert result.outcome == "done"
    assert all(0 < reward < 1 for reward in result.rewards)


def test_a_plugin_file_runs_in_a_pipeline_of_mocks(areal_run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from areal_plugins import RewardDescriptor, hookimpl\n"
        "from areal_plugins.data import Score\n"
        "class One:\n    async def score(self, sample):\n        return Score(1.0)\n"
        "def make(options, context):\n    return One()\n"
        "@hookimpl\ndef areal_rewards():\n"
        "    return [RewardDescriptor(name='one', summary='1', factory=f'{__name__}:make')]\n"
    )
    assert set(areal_run(with_reward("one"), plugins=[file]).rewards) == {1.0}


def test_observers_of_a_plugin_are_told(areal_run):
    steps = []

    class Observer:
        @hookimpl
        def areal_step_finished(self, step):
            steps.append(step)

    assert areal_run(plugins=[Observer()]).outcome == "done"
    assert steps == [1, 2, 3]


def test_runs_repeat_themselves(areal_run):
    slow = "inference: {mock: {token_seconds: 0.5, lengths: heavy-tail, longest: 90}}"
    first, second = areal_run(slow), areal_run(slow)
    assert first.metrics == second.metrics
    assert first.folder != second.folder


def test_overrides_are_those_of_the_command_line(areal_run):
    assert len(areal_run(overrides=["training.max_steps=5"]).metrics) == 5


def test_a_run_that_fails_says_why(areal_run):
    result = areal_run("training: {mock: {faults: [{method: train, call: 2}]}}")
    assert result.outcome == "failed"
    assert "told to fail at call 2 of train" in str(result.error)
    with pytest.raises(type(result.error)):
        result.ensure_done()


def test_a_worker_that_is_told_to_fail_is_an_event(areal_run):
    result = areal_run("executor: {mock: {faults: [{method: prepare, call: 2}]}}")
    assert result.outcome == "done"
    assert "weights-failed" in [event.kind for event in result.events]


def test_a_plugin_that_hangs_does_not_hang_its_tests(areal_run):
    with pytest.raises(TimeoutError, match=r"not done after 50 s of virtual time; waiting in .*Event\.wait"):
        areal_run(with_reward("never"), plugins=[MINE], limit=50.0)


def test_a_wrong_spec_raises_its_findings(areal_run):
    with pytest.raises(ArealError, match="learning_rte"):
        areal_run({"training": {"learning_rte": 1}})


def test_a_plugin_that_is_no_plugin_is_refused(areal_run, tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module")
    with pytest.raises(ValueError, match=r"plugin broken is not usable .*no_such_module"):
        areal_run(plugins=[tmp_path / "broken.py"])


def test_hours_pass_in_a_moment(areal_virtually):
    async def main():
        await asyncio.sleep(3600 * 24)
        return asyncio.get_running_loop().time()

    assert areal_virtually(main()) == 3600 * 24


def test_loading_the_pytest_plugin_imports_nothing_heavy():
    code = "import sys, areal_plugins.testing.pytest_plugin as _; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = set(shown.split())
    assert not loaded & {*HEAVY, "areal_core.manager", "areal_core.spec", "ruamel.yaml", "asyncio"}


def test_a_run_of_mocks_needs_no_torch(tmp_path):
    code = (
        "import sys, pathlib; from areal_plugins.testing.pipeline import run_mocked;"
        f"print(run_mocked(pathlib.Path({str(tmp_path)!r})).outcome, 'torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.split() == ["done", "False"]
