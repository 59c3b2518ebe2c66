import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from areal_core.data import Message
from areal_plugins import InputError
from areal_plugins.builtin.environments.records import Record, RecordFile

Write = Callable[[bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: bytes) -> Path:
        path = tmp_path / "tasks.jsonl"
        path.write_bytes(content)
        return path

    return write


values = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=5)
records = st.dictionaries(st.text(), values, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(records, st.sampled_from(["", " ", "\t"])), min_size=1), st.sampled_from(["\n", "\r\n"]))
def test_every_record_is_read_as_written_and_knows_its_line(write: Write, lines: list[Any], ending: str) -> None:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path = write(ending.join(texts).encode())
    expected = [(f"{path}:{n}", line) for n, line in enumerate(lines, 1) if not isinstance(line, str)]
    if not expected:
        with pytest.raises(InputError, match="holds no records"):
            RecordFile(path)
        return
    assert [(record.where, record.values) for record in RecordFile(path)] == expected


def test_records_are_found_in_any_order(write: Write) -> None:
    file = RecordFile(write(b'{"n": 0}\n{"n": 1}\n{"n": 2}'))
    assert [file[index].values["n"] for index in (2, 0, 1)] == [2, 0, 1]


@pytest.mark.parametrize("index", [-1, 1])
def test_there_is_no_record_beyond_the_last(write: Write, index: int) -> None:
    with pytest.raises(IndexError, match="has 1 records"):
        RecordFile(write(b"{}\n"))[index]


def test_a_byte_order_mark_is_no_part_of_the_first_record(write: Write) -> None:
    assert RecordFile(write(b'\xef\xbb\xbf{"a": 1}\n'))[0].values == {"a": 1}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"a": 1', "is not JSON: Input data was truncated"),
        (b"{'a': 1}", "is not JSON"),
        (b'{"a": "\xff"}', "is not UTF-8: invalid start byte"),
        (b'{"a": 1} {}', "is not JSON"),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "is nested too deep"),
        (b"[1, 2]", r"must be a JSON object, not \[1,2\]"),
        (b'"' + b"x" * 99 + b'"', r"must be a JSON object, not \"x{39}\.\.\."),
    ],
)
def test_a_bad_line_is_named(write: Write, line: bytes, problem: str) -> None:
    path = write(b"{}\n\n" + line + b"\n{}\n")
    with pytest.raises(InputError, match=rf"tasks\.jsonl:3: {problem}"):
        RecordFile(path)[1]


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_records_is_named(write: Write, content: bytes) -> None:
    with pytest.raises(InputError, match=r"tasks\.jsonl: holds no records"):
        RecordFile(write(content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.jsonl: cannot be read: No such file"):
        RecordFile(tmp_path / "none.jsonl")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        RecordFile(tmp_path)


@pytest.mark.parametrize(("value", "text"), [("a", "a"), (24, "24"), (0.5, "0.5"), (10**20, "100000000000000000000")])
def test_numbers_are_texts_too(value: Any, text: str) -> None:
    assert Record("f:1", {"x": value}).text("x") == text


@pytest.mark.parametrize("value", [None, True, [1], {"a": 1}])
def test_other_values_are_no_text(value: Any) -> None:
    with pytest.raises(InputError, match="f:1: 'x' must be a text or a number, not "):
        Record("f:1", {"x": value}).text("x")


def test_a_missing_field_is_named_with_those_there_are() -> None:
    with pytest.raises(InputError, match=r"f:1: the record has no field 'x' \(it has 'y', 'z'\)"):
        Record("f:1", {"y": 1, "z": 2}).text("x")


def test_messages_are_read() -> None:
    record = Record("f:1", {"x": [{"role": "user", "content": "hi"}]})
    assert record.text_or_messages("x") == (Message("user", "hi"),)


@pytest.mark.parametrize("value", [[1], [{"role": "user"}], [{"role": "user", "content": 1}]])
def test_messages_need_role_and_content(value: Any) -> None:
    with pytest.raises(InputError, match="f:1: 'x' must be a text, or messages with role and content"):
        Record("f:1", {"x": value}).text_or_messages("x")
