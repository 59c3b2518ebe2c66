from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_plugins.builtin.rewards.extract import (
    EXTRACTORS,
    after_hashes,
    answer_tag,
    boxed,
    last_line,
    last_number,
    number,
)

numbers = st.decimals(min_value=-(10**9), max_value=10**9, places=3).map(lambda d: f"{d:f}")


@given(st.sampled_from(sorted(EXTRACTORS)), st.text())
def test_no_text_breaks_an_extractor(name: str, text: str) -> None:
    assert isinstance(EXTRACTORS[name](text), str | None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5-3", "3"),
        ("5 - 3", "3"),
        ("= -7", "-7"),
        ("it costs 1,234.50 dollars", "1234.50"),
        ("1,2,3", "3"),
        ("1,234, and no more", "1234"),
        ("12,345,678", "12345678"),
        ("the answer is 12.", "12"),
        (".5", ".5"),
        ("\N{MINUS SIGN}4", "-4"),
        ("3km", "3"),
        ("$5", "5"),
        ("(3, 4)", "4"),
        ("first 1 then 2", "2"),
        ("x3", None),
        ("none", None),
        ("", None),
    ],
)
def test_the_last_number_is_found(text: str, expected: str | None) -> None:
    assert last_number(text) == expected


@given(numbers, st.text(alphabet="abc .,=\n"))
def test_a_number_after_any_words_is_found_again(written: str, words: str) -> None:
    assert last_number(f"{words} {written} units") == written


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_thousands_separators_do_not_matter(value: int) -> None:
    assert number(f"{value:,}") == value == number(str(value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,000.0", Decimal(1000)), ("$5", Decimal(5)), ("12.", Decimal(12)), ("5%", Decimal(5)), (" -3 ", Decimal(-3))],
)
def test_a_number_is_read_as_people_write_it(text: str, expected: Decimal) -> None:
    assert number(text) == expected


@pytest.mark.parametrize("text", ["", "five", "1 2", "5-3", "1,2", "0x10", "nan", "1e5"])
def test_other_texts_are_no_number(text: str) -> None:
    assert number(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"so \boxed{4}", "4"),
        (r"\boxed{1} no, \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\boxed{ x }", "x"),
        (r"\boxed{{}}", "{}"),
        (r"\boxed{4", None),
        ("no box", None),
    ],
)
def test_the_last_box_is_opened(text: str, expected: str | None) -> None:
    assert boxed(text) == expected


@given(
    st.recursive(st.just("x"), lambda inner: inner.map(lambda t: "{" + t + "}") | st.tuples(inner, inner).map("".join))
)
def test_balanced_braces_stay_in_the_box(inside: str) -> None:
    assert boxed(rf"a \boxed{{{inside}}} }} b") == inside


@pytest.mark.parametrize(("text", "expected"), [("a\n b \n\n", "b"), ("a", "a"), (" \n ", None), ("", None)])
def test_the_last_line_is_not_blank(text: str, expected: str | None) -> None:
    assert last_line(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("work\n#### 72", "72"), ("#### 1\n#### 2\nmore", "2"), ("####", ""), ("72", None)]
)
def test_the_answer_stands_after_hashes(text: str, expected: str | None) -> None:
    assert after_hashes(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>2</think><answer> 4 </answer>", "4"),
        ("<answer>1</answer><answer>2</answer>", "2"),
        ("<answer>4", None),
        ("4</answer>", None),
    ],
)
def test_the_answer_stands_in_its_tag(text: str, expected: str | None) -> None:
    assert answer_tag(text) == expected
