import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Score, Task
from areal_plugins.builtin.rewards import verification
from areal_plugins.builtin.rewards.isolation import CallFailed, LimitExceeded
from areal_plugins.builtin.rewards.math import Math
from areal_plugins.builtin.rewards.options import MathOptions

HOPELESS = r"\boxed{9^{9^{9^{9}}} - 9^{9^{9^{9}}}}"


def sample(answer: str, gold: str) -> Sample:
    return Sample(Task("ask", answer=gold), "ask", answer)


@pytest.fixture(scope="module")
def math() -> Iterator[Math]:
    reward = Math(MathOptions(workers=1, timeout=30.0), RewardContext("world"))
    yield reward
    asyncio.run(reward.close())


@pytest.mark.parametrize(
    ("gold", "answer", "right"),
    [
        ("24", "The answer is 24.", True),
        ("24", r"so \boxed{24}", True),
        ("24", r"24 at first, but \boxed{25}", False),
        ("1,234", "1234", True),
        (r"\frac{1}{2}", "0.5", True),
        (r"$\sqrt{2}$", "$2^{1/2}$", True),
        ("x=5", "$5$", True),
        ("(3,4)", "$(3,4)$", True),
        ("24", "", False),
        ("24", "no idea", False),
        ("24", r"\boxed{\frac{}", False),
    ],
)
def test_answers_are_compared_as_mathematics(gold: str, answer: str, right: bool) -> None:
    assert verification.verify(gold, answer, whole=False) is right


def test_a_whole_answer_is_latex_without_marks() -> None:
    assert verification.verify("0.5", r"\frac{1}{2}", whole=True)


def test_a_verdict_is_one_or_zero(math: Math) -> None:
    async def main() -> list[Score]:
        return [await math.score(sample(answer, "24")) for answer in ("it is 24", "it is 25")]

    assert asyncio.run(main()) == [Score(1.0, {"unverified": 0.0}), Score(0.0, {"unverified": 0.0})]


def test_a_gold_answer_that_is_no_mathematics_is_an_error_not_a_zero(math: Math) -> None:
    with pytest.raises(CallFailed, match="the task's answer '' cannot be read as mathematics"):
        asyncio.run(math.score(sample("24", "")))


def judged(answer: str, gold: str = "24", **options: Any) -> Score:
    async def main() -> Score:
        reward = Math(MathOptions(workers=1, **options), RewardContext("world", blocking=True))
        try:
            return await reward.score(sample(answer, gold))
        finally:
            await reward.close()

    return asyncio.run(main())


def test_the_part_that_counts_can_be_chosen() -> None:
    assert judged("24\n25", extract="last-line") == Score(0.0, {"unverified": 0.0})


def test_an_answer_without_the_part_that_counts_is_wrong() -> None:
    assert judged("24", extract="boxed") == Score(0.0, {"unverified": 0.0})


def test_a_verification_without_verdict_is_wrong_and_visible() -> None:
    assert judged(HOPELESS, timeout=1.0) == Score(0.0, {"unverified": 1.0})


def test_a_verification_without_verdict_can_be_an_error() -> None:
    with pytest.raises(LimitExceeded):
        judged(HOPELESS, timeout=1.0, on_timeout="error")
