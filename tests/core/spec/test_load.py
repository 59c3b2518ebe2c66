"""YAML as written: types, places, and everything that is no YAML."""

from __future__ import annotations

from pathlib import Path

import pytest

from areal_core.spec.findings import Report
from areal_core.spec.load import MAX_BYTES, Unreadable, parse, read_source, scalar
from areal_core.spec.node import Source, plain


def source(text: str) -> Source:
    return Source("x.yaml", text, Path())


def tree(text: str):
    report = Report()
    root = parse(source(text), report)
    assert not report.findings
    return root


def findings(text: str):
    report = Report()
    try:
        parse(source(text), report)
    except Unreadable:
        assert report.findings
    return report.findings


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.0e-5", 1e-5),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("True", True),
        ("008", 8),
        ("0o10", 8),
        ("0x1F", 31),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("~", None),
        ("''", ""),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("", None),
    ],
)
def test_scalars_mean_what_yaml_1_2_says(text, value):
    found = scalar(text)
    assert found == value
    assert type(found) is type(value)


def test_every_key_and_value_knows_its_place():
    root = tree("a: 1\nb:\n  - {c: xyz}\n")
    node, missing = root.nearest(("b", 0, "c"))
    assert missing == ()
    assert (node.location.line, node.location.column, node.location.width) == (3, 9, 3)
    assert (node.key_location.column, node.key_location.excerpt) == (6, "  - {c: xyz}")


def test_anchors_and_merge_keys_are_spread_out():
    root = tree("base: &b {x: 1, y: 2}\nmore: &m {y: 3}\nchild: {<<: [*m, *b], z: 4}\n")
    assert plain(root)["child"] == {"x": 1, "y": 3, "z": 4}


def test_an_anchor_may_be_set_again():
    assert plain(tree("a: &x 1\nb: &x 2\nc: *x\n")) == {"a": 1, "b": 2, "c": 2}


def test_a_byte_order_mark_and_windows_line_ends_are_no_trouble(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    root = parse(read_source(str(file), Report()), Report())
    assert plain(root) == {"a": 1, "b": 2}
    assert root.value["b"].location.excerpt == "b: 2"


@pytest.mark.parametrize(
    ("text", "code", "line", "hint"),
    [
        ("a:\n\tb: 1\n", "yaml-syntax", 2, "use spaces, not tabs"),
        ("a: 1\n b: 2\n", "yaml-syntax", 2, "one column"),
        ("x: 1\na: 'x\nb: 1\n", "yaml-syntax", 2, "close the quote"),
        ("a: [1, 2\nb: 3\n", "yaml-syntax", 2, "close the bracket"),
        ("a: *x\n", "yaml-syntax", 1, "set the anchor"),
        ("a: 1\n---\nb: 2\n", "yaml-syntax", 2, "second `---`"),
        ("a: @x\n", "yaml-syntax", 1, "quote the value"),
        ("a: {path: ${env:X}}\n", "yaml-syntax", 1, "quote a text that holds `${...}`"),
        ('a: "\\q"\n', "yaml-syntax", 1, "single quotes"),
        ("%YAML 1.1\n---\na: yes\n", "yaml-syntax", 1, "remove the line"),
        ("a: \x00\n", "yaml-syntax", 1, None),
        ("a: 1\nb: 2\na: 3\n", "duplicate-key", 3, "first on line 1"),
        ("1: a\n", "bad-key", 1, "quote it"),
        ("? [a]\n: 1\n", "bad-key", 1, "quote a text that holds braces"),
        ("a: {{ b }}\n", "bad-key", 1, "quote a text that holds braces"),
        ("{a: 1,000}\n", "bad-key", 1, "without commas"),
        ("x:\n   a: 1\n  b: 2\n", "yaml-syntax", 3, "one column"),
        ("a: 010\n", "ambiguous-number", 1, "write 10, or 0o10"),
        ("a: -0755\n", "ambiguous-number", 1, "write -755, or -0o755"),
        ("a: !!python/object:os.system x\n", "unknown-tag", 1, "remove the tag"),
        ("a: !mine {b: 1}\n", "unknown-tag", 1, "remove the tag"),
        ("a: !!int x\n", "bad-value", 1, None),
        ("a: " + "9" * 5000, "bad-value", 1, None),
        ("a: 1" + "0" * 400, "bad-value", 1, None),
        ("a: 18446744073709551616", "bad-value", 1, None),
        ("", "empty-spec", 1, "model: {type: hf"),
        ("# nothing\n", "empty-spec", 1, "model: {type: hf"),
        ("- a\n- b\n", "not-a-mapping", 1, "model: {type: hf"),
        ("text\n", "not-a-mapping", 1, "model: {type: hf"),
        ("a: {<<: 5}\n", "bad-type", 1, None),
    ],
)
def test_what_is_wrong_has_a_code_a_line_and_a_way_out(text, code, line, hint):
    (finding,) = findings(text)
    assert (finding.code, finding.location.line) == (code, line)
    assert hint is None or hint in finding.hint


def test_all_duplicate_keys_are_reported_and_the_first_counts():
    found = findings("a: 1\na: 2\nb: {c: 1, c: 2}\n")
    assert [(f.code, f.location.line) for f in found] == [("duplicate-key", 2), ("duplicate-key", 3)]


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        "b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
        "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"
        "d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n"
        "e: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\n",
        "a: &a [*a]\n",
        "a: &a {b: *a}\n",
        "a: " + "[" * 5000,
        "a: " + "[" * 60 + "]" * 60,
    ],
)
def test_bombs_are_refused(bomb):
    assert [f.code for f in findings(bomb)] == ["too-large"]


def test_a_huge_file_is_refused(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("#" * (MAX_BYTES + 1))
    report = Report()
    with pytest.raises(Unreadable):
        read_source(str(file), report)
    assert [f.code for f in report.findings] == ["too-large"]


def test_a_file_that_is_not_utf_8_is_located_to_the_byte(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes(b"a: 1\nb: \xe9\n")
    report = Report()
    with pytest.raises(Unreadable):
        read_source(str(file), report)
    (finding,) = report.findings
    assert (finding.code, finding.location.line, finding.location.column) == ("encoding", 2, 4)


def test_a_column_counts_characters_and_not_bytes(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_bytes("a: äöü".encode() + b"\xe9\n")
    report = Report()
    with pytest.raises(Unreadable):
        read_source(str(file), report)
    assert report.findings[0].location.column == 7


@pytest.mark.parametrize(
    ("raw", "hint"),
    [("a: 1".encode("utf-16"), "UTF-16"), (b"\x89PNG\r\n\0", "no text file"), (b"\xe9", "as UTF-8")],
)
def test_what_is_not_utf_8_is_told_apart(tmp_path, raw, hint):
    file = tmp_path / "a.yaml"
    file.write_bytes(raw)
    report = Report()
    with pytest.raises(Unreadable):
        read_source(str(file), report)
    assert report.findings[0].code == "encoding"
    assert hint in report.findings[0].hint


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no endless file")
def test_an_endless_file_is_refused():
    report = Report()
    with pytest.raises(Unreadable):
        read_source("/dev/zero", report)
    assert [f.code for f in report.findings] == ["too-large"]


def test_a_missing_file_names_its_neighbour(tmp_path):
    (tmp_path / "quickstart.yaml").write_text("a: 1")
    report = Report()
    with pytest.raises(Unreadable):
        read_source(str(tmp_path / "quickstrat.yaml"), report)
    assert report.findings[0].code == "no-such-file"
    assert "quickstart.yaml" in report.findings[0].hint


def test_a_directory_is_no_spec(tmp_path):
    report = Report()
    with pytest.raises(Unreadable):
        read_source(str(tmp_path), report)
    assert "is a directory" in report.findings[0].message
