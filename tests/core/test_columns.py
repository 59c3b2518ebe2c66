from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from areal_core.columns import COPY_BELOW, Columns, columns_of

TABLE = {"tokens": np.arange(3, dtype=np.int32), "mask": np.ones(3, np.uint8)}

names = st.text(st.characters(exclude_characters="\n", exclude_categories=("Cs",)), max_size=5)
kinds = st.sampled_from("?bBhHiIqQefdFD").map(np.dtype)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, np.ndarray]:
    units = draw(st.integers(0, 7))
    return draw(st.dictionaries(names, kinds.flatmap(lambda kind: hnp.arrays(kind, units)), min_size=1, max_size=4))


def sent(columns: Columns, before: bytes = b"") -> Columns:
    """What arrives of it, `before` standing before it in the message's body."""
    packed = columns.pack(len(before))
    assert packed is not None
    told, data = packed
    return Columns.unpack(memoryview(told), memoryview(bytearray(before + data)))


@given(tables(), st.integers(0, 3))
def test_they_arrive_as_they_were_and_once_more_when_they_are_passed_on(
    table: dict[str, np.ndarray], words: int
) -> None:
    arrived = sent(sent(Columns(table)), bytes(8 * words))
    assert list(arrived) == list(table)
    for name, column in table.items():
        np.testing.assert_array_equal(arrived[name], column)
        assert arrived[name].dtype == column.dtype
    assert (len(arrived), arrived.units) == (len(table), len(next(iter(table.values()))))


def test_they_read_like_a_dict_before_and_after_the_way() -> None:
    for columns in (Columns(TABLE), sent(Columns(TABLE))):
        assert ("mask" in columns, "other" in columns, columns.get("other")) == (True, False, None)
        assert {name: column.tolist() for name, column in columns.items()} == {"tokens": [0, 1, 2], "mask": [1, 1, 1]}
        with pytest.raises(KeyError, match="other"):
            columns["other"]


def test_columns_can_be_exchanged_and_left_out_wherever_they_came_from() -> None:
    for columns in (Columns(TABLE), sent(Columns(TABLE))):
        columns["mask"] = np.zeros(3, np.uint8)
        del columns["tokens"]
        assert {name: column.tolist() for name, column in sent(columns).items()} == {"mask": [0, 0, 0]}


def test_a_copy_needs_the_message_no_more() -> None:
    copied = copy.deepcopy(sent(Columns({"mask": np.ones(3, np.uint8)})))
    assert copied["mask"].tolist() == [1, 1, 1]
    assert copied["mask"].base is None


def test_what_arrived_can_be_written_to_and_is_passed_on_as_written() -> None:
    arrived = sent(Columns({"mask": np.zeros(3, np.uint8)}))
    arrived["mask"][1] = 1
    assert sent(arrived)["mask"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    "column",
    [np.zeros((2, 3)), np.zeros(COPY_BELOW), np.zeros(2, dtype=">i4"), np.array(["a", "b"])],
    ids=["several numbers a unit", "long", "another byte order", "texts"],
)
def test_what_is_not_a_short_column_of_plain_numbers_crosses_as_an_array_of_its_own(column: np.ndarray) -> None:
    assert Columns({"x": column}).pack(0) is None


@pytest.mark.parametrize("table", [{}, {"two\nlines": np.zeros(2)}], ids=["none", "a strange name"])
def test_what_has_no_plain_description_crosses_as_arrays_too(table: dict[str, np.ndarray]) -> None:
    assert Columns(table).pack(0) is None


def test_columns_of_different_lengths_cross_as_arrays_so_that_whoever_reads_them_complains() -> None:
    assert Columns({"tokens": np.zeros(3), "mask": np.zeros(2)}).pack(0) is None


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"\0" * 16,
        b"\0" * 15 + b"x",
        b"\0" * 16 + b"tokens",
        b"\0" * 16 + b"tokens |O",
        b"\0" * 16 + b"x <i4\nx <i4",
        b"\0" * 16 + b"\xff <i4",
    ],
)
def test_what_tells_nonsense_is_refused(told: bytes) -> None:
    with pytest.raises(ValueError, match="malformed columns"):
        Columns.unpack(memoryview(told), memoryview(b""))


def test_columns_that_would_reach_beyond_the_message_are_refused() -> None:
    packed = Columns({"tokens": np.arange(4)}).pack(0)
    assert packed is not None
    told, data = packed
    with pytest.raises(ValueError, match="end at 32 of 24 bytes"):
        Columns.unpack(memoryview(told), memoryview(bytes(data)[:24]))


def test_columns_stay_what_they_are() -> None:
    columns = Columns({"tokens": np.arange(4)})
    assert columns_of(columns) is columns
