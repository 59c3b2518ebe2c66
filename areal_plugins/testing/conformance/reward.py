"""What a reward must keep."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, TypeVar

import pytest

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score, Task
from areal_core.protocols import Reward
from areal_core.workers.session import sound
from areal_plugins.testing.conformance import elsewhere
from areal_plugins.testing.conformance.base import Conformance, Subject
from areal_plugins.testing.conformance.leftovers import close, opened, patiently, running, turns

T = TypeVar("T")

ANSWERS = (
    "42",
    "41",
    "The answer is 42.",
    "#### 42",
    r"\boxed{42}",
    "<think>6*7</think><answer>42</answer>",
    "forty-two",
)

ODD: dict[str, str] = {
    "empty": "",
    "blank": " \n\t ",
    "huge": "so 6 times 7 is 42, " * 20_000,
    "long number": "4" * 6_000,
    "large exponent": "1e999999999",
    "nul": "4\x002",
    "many brackets": r"\boxed{" * 2_000 + "42",
    "unbalanced": "}}]]))</answer><think>",
    "other scripts": "\u0664\u0662 \u56db\u5341\u4e8c \u202e24 \U0001f9ee",
    "separators": "4\u2028\u2029\x85\x0b\x0c2",
}


class RewardConformance(Conformance):
    """Rules for judges of answers.

    `patience`: seconds that any one rule may take.
    """

    kind: ClassVar[str] = "reward"
    patience: ClassVar[float] = 60.0

    @pytest.fixture
    def task(self) -> Task:
        """What was asked; a reward that reads more than the answer gets it here."""
        return Task("What is 6 times 7?", answer="42")

    @pytest.fixture
    def samples(self, task: Task) -> list[Sample]:
        """Answers of all kinds, right and wrong, no two the same."""
        return [Sample(task, str(task.prompt), answer) for answer in ANSWERS]

    @pytest.fixture
    def endless(self) -> Sample:
        """A sample whose verification takes for ever under the component's options, if nobody ends it."""
        raise NotImplementedError("it declares `isolated`: override the fixture `endless` with a sample to time out")

    @pytest.fixture
    def make(self, subject: Subject) -> Callable[[], Reward]:
        """Builds the reward anew."""
        return lambda: subject.build(RewardContext("conformance"))

    def test_verdicts_are_finite_scores(self, make: Callable[[], Reward], samples: list[Sample]) -> None:
        """A verdict is a `Score` of finite numbers."""
        for sample, verdict in zip(samples, self._verdicts(make, samples), strict=True):
            assert _is_sound(verdict), (
                f"the verdict on {sample.answer!r} is {verdict!r}, which is no Score of finite numbers"
            )

    def test_the_same_sample_gets_the_same_verdict(self, make: Callable[[], Reward], samples: list[Sample]) -> None:
        """Judged again, a sample gets the verdict that it got."""

        async def judge() -> list[tuple[Score, Score]]:
            async with opened(make) as reward:
                return [(await reward.score(sample), await reward.score(sample)) for sample in samples]

        for sample, (first, second) in zip(samples, self._run(judge), strict=True):
            assert first == second, f"the verdict on {sample.answer!r} is {first} and then {second}"

    def test_the_order_does_not_matter(self, make: Callable[[], Reward], samples: list[Sample]) -> None:
        """A verdict does not depend on what was judged before."""
        forwards = self._verdicts(make, samples)
        backwards = self._verdicts(make, samples[::-1])[::-1]
        for sample, first, second in zip(samples, forwards, backwards, strict=True):
            assert first == second, f"the verdict on {sample.answer!r} is {first}, in another order {second}"

    def test_verdicts_at_once_are_the_same(self, make: Callable[[], Reward], samples: list[Sample]) -> None:
        """Samples that are judged at the same time get the verdicts that they get one by one."""

        async def judge() -> list[Score]:
            async with opened(make) as reward:
                return await asyncio.gather(*(reward.score(sample) for sample in samples))

        for sample, first, second in zip(samples, self._verdicts(make, samples), self._run(judge), strict=True):
            assert first == second, f"the verdict on {sample.answer!r} is {first}, at the same time as others {second}"

    def test_another_process_gives_the_same_verdicts(
        self, subject: Subject, make: Callable[[], Reward], samples: list[Sample]
    ) -> None:
        """Workers agree on every verdict, whatever their hash seed."""
        there = elsewhere.ask(subject, RewardContext("conformance"), verdicts_of, samples)
        for sample, first, second in zip(samples, self._verdicts(make, samples), there, strict=True):
            assert first == second, f"the verdict on {sample.answer!r} is {first}, in another process {second}"

    def test_odd_answers_are_judged(self, make: Callable[[], Reward], task: Task) -> None:
        """Whatever a model says, however long, gets a finite score."""

        async def judge() -> dict[str, object]:
            async with opened(make) as reward:
                return {name: await _outcome(reward, Sample(task, str(task.prompt), ODD[name])) for name in ODD}

        for name, outcome in self._run(judge).items():
            assert _is_sound(outcome), f"an answer that is {name} gets {outcome!r}, which is no Score of finite numbers"

    def test_a_verification_ends_at_its_time_out(
        self, subject: Subject, make: Callable[[], Reward], samples: list[Sample], request: pytest.FixtureRequest
    ) -> None:
        """Where verifications are isolated, one that takes for ever is ended, and others go on."""
        if not subject.descriptor.capabilities.isolated:
            pytest.skip("it declares no isolation")
        endless: Sample = request.getfixturevalue("endless")

        async def judge() -> Score:
            async with opened(make) as reward:
                stuck = asyncio.ensure_future(reward.score(endless))
                await asyncio.wait({stuck}, timeout=self.patience)
                assert stuck.done(), f"it is not ended after {self.patience:g} s"
                stuck.exception()  # an error is as good an end as a verdict
                return await patiently(reward.score(samples[0]), self.patience)

        assert self._run(judge) == self._verdicts(make, samples[:1])[0], "another verdict follows on a time-out"

    def test_a_verification_can_be_cancelled(self, make: Callable[[], Reward], samples: list[Sample]) -> None:
        """A verification that is cancelled ends as a cancelled one."""

        async def cancel() -> None:
            async with opened(make) as reward:
                verification = asyncio.ensure_future(reward.score(samples[0]))
                await asyncio.sleep(0)
                if verification.done():
                    return  # it never waits for anything
                verification.cancel()
                await asyncio.wait({verification}, timeout=self.patience)
                assert verification.done(), f"it goes on {self.patience:g} s after it was cancelled"
                assert verification.cancelled(), "it gives a verdict when it is cancelled"

        self._run(cancel)

    def test_closing_leaves_nothing(self, make: Callable[[], Reward], samples: list[Sample]) -> None:
        """After `close`, where there is one, nothing runs that did not run before."""

        async def leave() -> set[str]:
            before = running()
            reward = make()
            await reward.score(samples[0])
            await close(reward)
            await turns()
            return running() - before

        left = self._run(leave)
        assert not left, f"it leaves {', '.join(sorted(left))}"

    def _run(self, judge: Callable[[], Awaitable[T]]) -> T:
        async def run() -> T:
            return await patiently(judge(), self.patience)

        return asyncio.run(run())

    def _verdicts(self, make: Callable[[], Reward], samples: Sequence[Sample]) -> list[Score]:
        return self._run(lambda: _judge(make, samples))


def verdicts_of(reward: Reward, samples: list[Sample]) -> list[Score]:
    """The verdicts, asked for in another process."""
    return asyncio.run(_judge(lambda: reward, samples))


async def _judge(make: Callable[[], Reward], samples: Sequence[Sample]) -> list[Score]:
    async with opened(make) as reward:
        return [await reward.score(sample) for sample in samples]


async def _outcome(reward: Reward, sample: Sample) -> object:
    """The verdict, or what is raised instead."""
    try:
        return await reward.score(sample)
    except Exception as error:  # looked at by the rule
        return error


def _is_sound(verdict: object) -> bool:
    try:
        sound(verdict)
    except (TypeError, ValueError):
        return False
    return True
