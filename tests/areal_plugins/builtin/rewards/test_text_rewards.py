"""Rewards that compare texts: exact, regex, format, length."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.contexts import RewardContext
from areal_core.data import Sample, Task
from areal_plugins.builtin.rewards.exact import Exact
from areal_plugins.builtin.rewards.format import Format
from areal_plugins.builtin.rewards.length import Length
from areal_plugins.builtin.rewards.options import ExactOptions, FormatOptions, LengthOptions, RegexOptions
from areal_plugins.builtin.rewards.regex import Regex

CONTEXT = RewardContext("world")


def value(reward: Any, answer: str, gold: str = "") -> float:
    return asyncio.run(reward.score(Sample(Task("ask", answer=gold), "ask", answer))).value


def exact(answer: str, gold: str, **options: Any) -> float:
    return value(Exact(ExactOptions(**options), CONTEXT), answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [("4", "4", 1.0), (" 4\n", "4 ", 1.0), ("5", "4", 0.0), ("Yes", "yes", 0.0), ("", "4", 0.0)],
)
def test_exact_compares_stripped_texts(answer: str, gold: str, expected: float) -> None:
    assert exact(answer, gold) == expected


def test_exact_can_ignore_case() -> None:
    assert exact("STRASSE", "straße", casefold=True) == 1.0


@pytest.mark.parametrize(("answer", "expected"), [("1000.00", 1.0), ("$1,000", 1.0), ("1001", 0.0), ("many", 0.0)])
def test_exact_can_compare_numbers(answer: str, expected: float) -> None:
    assert exact(answer, "1,000", number=True) == expected


def test_a_gold_answer_that_is_no_number_is_an_error_not_a_zero() -> None:
    with pytest.raises(ValueError, match="the task's answer 'many' is no number"):
        exact("4", "many", number=True)


def test_exact_looks_at_the_part_that_counts() -> None:
    assert exact("2 + 2 is 4, so 4", "4", extract="last-number") == 1.0


def test_an_answer_without_the_part_that_counts_is_wrong() -> None:
    assert exact("four", "four", extract="boxed") == 0.0


@given(st.text(), st.text())
def test_exact_is_one_or_zero(answer: str, gold: str) -> None:
    assert exact(answer, gold) == float(answer.strip() == gold.strip())


def regex(answer: str, pattern: str, gold: str = "", **options: Any) -> float:
    return value(Regex(RegexOptions(pattern=pattern, **options), CONTEXT), answer, gold)


@pytest.mark.parametrize(
    ("answer", "options", "expected"),
    [
        ("it is 42 now", {}, 1.0),
        ("none", {}, 0.0),
        ("it is 42 now", {"whole": True}, 0.0),
        ("42", {"whole": True}, 1.0),
        ("it is 42", {"compare": True}, 1.0),
        ("it is 41", {"compare": True}, 0.0),
    ],
)
def test_regex_searches_matches_or_compares(answer: str, options: dict[str, bool], expected: float) -> None:
    assert regex(answer, r"\d+", "42", **options) == expected


def test_regex_compares_its_first_group() -> None:
    assert regex("Answer: Paris!", r"answer:\s*(\w+)", "paris", compare=True, casefold=True) == 1.0


def test_a_group_that_took_no_part_is_empty() -> None:
    assert regex("b", "(a)?b", "", compare=True) == 1.0


def test_a_broken_pattern_is_refused_with_its_position() -> None:
    with pytest.raises(ValueError, match=r"pattern is no regular expression: missing \).* at position 0"):
        RegexOptions(pattern="(a")


def formatted(answer: str, *tags: str) -> float:
    return value(Format(FormatOptions(**({"tags": tags} if tags else {})), CONTEXT), answer)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("<think>a</think><answer>b</answer>", 1.0),
        (" <think>\na\n</think>\n\n<answer>b</answer>\n", 1.0),
        ("<think></think><answer></answer>", 1.0),
        ("<answer>b</answer>", 0.0),
        ("<answer>b</answer><think>a</think>", 0.0),
        ("<think>a</think><answer>b</answer> and more", 0.0),
        ("well <think>a</think><answer>b</answer>", 0.0),
        ("<think>a</think><answer>b", 0.0),
        ("<think>a<answer>b</answer></think><answer>b</answer>", 0.0),
        ("<think>a</think><think>a</think><answer>b</answer>", 0.0),
        ("", 0.0),
    ],
)
def test_format_wants_each_element_once_and_nothing_else(answer: str, expected: float) -> None:
    assert formatted(answer) == expected


def test_format_takes_other_elements() -> None:
    assert formatted("<plan>x</plan>", "plan") == 1.0


def length(answer: str, **options: Any) -> float:
    return value(Length(LengthOptions(**options), CONTEXT), answer)


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0.0), (3, 0.5), (5, 1.0), (10, 1.0), (11, 0.75), (12, 0.5), (14, 0.0), (99, 0.0)]
)
def test_length_falls_linearly_beyond_its_limits(size: int, expected: float) -> None:
    assert length("x" * size, at_least=5, at_most=10, margin=4) == expected


@pytest.mark.parametrize(("size", "expected"), [(10, 1.0), (11, 0.0)])
def test_length_without_margin_is_a_step(size: int, expected: float) -> None:
    assert length("x" * size, at_most=10) == expected


def test_length_counts_words_where_asked() -> None:
    assert length("one two  three", unit="words", at_most=2, margin=2) == 0.5


@given(st.text(), st.integers(0, 20), st.integers(0, 20), st.integers(0, 10))
def test_length_stays_between_zero_and_one(text: str, low: int, high: int, margin: int) -> None:
    assert 0.0 <= length(text, at_least=low, at_most=high, margin=margin) <= 1.0
