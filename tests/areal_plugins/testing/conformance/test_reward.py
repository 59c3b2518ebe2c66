"""Rewards that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import asyncio
import contextlib
import os

import pytest
from attrs import evolve

from areal_core.data import Score
from areal_plugins import RewardCapabilities, RewardDescriptor
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import Case, RewardConformance
from areal_plugins.testing.conformance.reward import ODD
from areal_plugins.testing.conformance.running import run


class TestQuick(RewardConformance):
    @pytest.fixture(
        params=[
            "reward/exact",
            Case("reward/exact", {"extract": "last-number", "number": True}),
            Case("reward/regex", {"pattern": "42"}),
            "reward/format",
            Case("reward/length", {"at_most": 10, "margin": 5}),
            mocks.REWARD,
        ],
        ids=["exact", "number", "regex", "format", "length", "mock"],
    )
    def component(self, request):
        return request.param


class TestFunction(RewardConformance):
    @pytest.fixture
    def component(self, tmp_path):
        file = tmp_path / "judge.py"
        file.write_text(
            "import time\n"
            "def judge(sample):\n"
            "    if sample.answer == 'wait':\n        time.sleep(1000)\n"
            "    return sample.answer == sample.task.answer\n"
        )
        return Case("reward/function", {"path": f"{file}:judge", "timeout": 2.0, "workers": 1})

    @pytest.fixture
    def endless(self, samples):
        return evolve(samples[0], answer="wait")


class TestMath(RewardConformance):
    @pytest.fixture
    def component(self):
        pytest.importorskip("math_verify")
        return Case("reward/math", {"timeout": 5.0, "workers": 1})

    @pytest.fixture
    def endless(self, samples):
        return evolve(samples[0], answer=r"\boxed{9^{9^{9^{9^{9}}}}}")


class Right:
    def __init__(self, options, context):
        pass

    async def score(self, sample):
        await asyncio.sleep(0)
        return Score(float(sample.answer == sample.task.answer))


class Infinite(Right):
    async def score(self, sample):
        score = await super().score(sample)
        return Score(float("inf")) if score.value else score


class Bare(Right):
    async def score(self, sample):
        return 1.0


class Bored(Right):
    def __init__(self, options, context):
        self.seen = set()

    async def score(self, sample):
        again = sample.answer in self.seen
        self.seen.add(sample.answer)
        return Score(0.5 if again else (await super().score(sample)).value)


class Comparing(Right):
    first = None

    async def score(self, sample):
        self.first = self.first or len(sample.answer)
        return Score(float(len(sample.answer) > self.first))


class Confused(Right):
    async def score(self, sample):
        self.current = sample
        await asyncio.sleep(0)
        return await super().score(self.current)


class Local(Right):
    async def score(self, sample):
        return Score(float(os.getpid()))


class Delicate(Right):
    async def score(self, sample):
        if len(sample.answer) > 1000:
            raise ValueError("too much")
        return await super().score(sample)


class Patient(Right):
    async def score(self, sample):
        if sample.finish == "abort":
            await asyncio.sleep(1000)
        return await super().score(sample)


class Stubborn(Right):
    async def score(self, sample):
        with contextlib.suppress(asyncio.CancelledError):
            return await super().score(sample)
        return Score(0.0)


class Littering(Right):
    def __init__(self, options, context):
        self.waiting = None

    async def score(self, sample):
        self.waiting = self.waiting or asyncio.ensure_future(asyncio.sleep(1000))
        Littering.kept = self.waiting
        return await super().score(sample)


BROKEN = {
    "test_verdicts_are_finite_scores": Infinite,
    "test_the_same_sample_gets_the_same_verdict": Bored,
    "test_the_order_does_not_matter": Comparing,
    "test_verdicts_at_once_are_the_same": Confused,
    "test_another_process_gives_the_same_verdicts": Local,
    "test_odd_answers_are_judged": Delicate,
    "test_a_verification_ends_at_its_time_out": Patient,
    "test_a_verification_can_be_cancelled": Stubborn,
    "test_closing_leaves_nothing": Littering,
}
RULES = [name for name in vars(RewardConformance) if name.startswith("test_")]


class Isolated(RewardConformance):
    """With a sample that takes for ever, and little patience."""

    patience = 2.0

    @pytest.fixture
    def endless(self, samples):
        return evolve(samples[0], finish="abort")


def failed(cls, only=tuple(RULES)):
    descriptor = RewardDescriptor(
        name=cls.__name__.lower(),
        summary="an odd one",
        factory=f"{__name__}:{cls.__name__}",
        capabilities=RewardCapabilities(isolated=cls is Patient),
    )
    found = [r for r in run(Isolated, descriptor, only=only) if r.outcome == "failed"]
    return {r.test: r.cause for r in found}


def test_a_plain_reward_keeps_every_rule():
    assert failed(Right) == {}


def test_there_is_a_broken_reward_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_reward_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found


def test_a_verdict_that_is_no_score_is_told_what_it_should_be():
    (cause,) = failed(Bare, ["test_verdicts_are_finite_scores"]).values()
    assert cause.endswith("is 1.0, which is no Score of finite numbers")


def test_an_isolated_reward_must_bring_a_sample_that_takes_for_ever():
    found = run(
        RewardConformance,
        RewardDescriptor(
            name="isolated", summary="one", factory=f"{__name__}:Right", capabilities=RewardCapabilities(isolated=True)
        ),
        only=["test_a_verification_ends_at_its_time_out"],
    )
    assert [(r.outcome, "override the fixture `endless`" in r.cause) for r in found] == [("failed", True)]


def test_odd_answers_are_what_they_are_called():
    assert ODD["empty"] == ""
    assert len(ODD["huge"]) > 100_000
