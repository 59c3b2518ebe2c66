"""YAML text to nodes. YAML 1.2, safe: no tag makes an object, and no alias a bomb."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from attrs import define
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from areal_core.errors import Location
from areal_core.spec.findings import Report, nearest
from areal_core.spec.node import UNKNOWN, Node, Source, Span

MAX_BYTES = 256 * 1024
MAX_VALUES = 20_000
MAX_DEPTH = 50

_STANDARD = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_STANDARD + name for name in ("null", "bool", "int", "float")}
_OCTAL = re.compile(r"([-+]?)0+([1-7][0-7]+)")
_TEXT_TAGS = {_STANDARD + name for name in ("str", "timestamp", "value")}


class Unreadable(Exception):
    """There is nothing to go on with; the report holds why."""


def read_source(path: str, report: Report, blame: Location | None = None) -> Source:
    """The file's text. `blame` is where the file is named, if in another one.

    Raises:
        Unreadable: no such file, a directory, not UTF-8, too large.
    """
    where = blame or Location(path, 1, 1)
    try:
        raw = _beginning(path)
    except FileNotFoundError:
        report.error("no-such-file", f"there is no file {path}", location=where, hint=_neighbours(path))
        raise Unreadable from None
    except IsADirectoryError:
        report.error("no-such-file", f"{path} is a directory, not a file", location=where, hint="name the YAML file")
        raise Unreadable from None
    except (OSError, ValueError) as error:  # ValueError: a text that can be no path
        report.error("unreadable-file", f"{path!r}: {getattr(error, 'strerror', None) or error}", location=where)
        raise Unreadable from None
    return Source(path, _decode(raw, path, report), Path(path).absolute().parent)


def parse(source: Source, report: Report) -> Node:
    """The text as a tree.

    Raises:
        Unreadable: it is no YAML, or its top is no mapping.
    """
    root = compose(source, report)
    if not isinstance(root.value, dict):
        what = "empty" if root.value is None else "a list" if isinstance(root.value, list) else "a single value"
        report.error(
            "empty-spec" if root.value is None else "not-a-mapping",
            f"the spec is {what}; it must be a mapping of sections",
            location=root.location,
            hint="write `section: ...` lines, such as `model: {type: hf, path: ...}`",
        )
        raise Unreadable
    return root


def compose(source: Source, report: Report) -> Node:
    """Any YAML value as a tree, with an empty text as null.

    Raises:
        Unreadable: it is no YAML.
    """
    try:
        _refuse_directives(source, report)
        _refuse_brackets(source, report)
        composed = _yaml().compose(source.text)
        root = _Builder(source, report).node(composed) if composed is not None else Node(None, source)
    except ReaderError as error:
        message = f"the character U+{ord(_character(error)):04X} cannot stand in YAML"
        report.error("yaml-syntax", message, location=source.at_offset(error.position))
        raise Unreadable from None
    except MarkedYAMLError as error:
        report.error("yaml-syntax", _problem(error), hint=_syntax_hint(error, source), location=_mark(error, source))
        raise Unreadable from None
    except RecursionError:
        _refuse_depth(source, report)
    return root


def _refuse_brackets(source: Source, report: Report) -> None:
    """Brackets far beyond any spec: the reader's time grows with the square of their depth."""
    depth = 0
    for bracket in re.finditer(r"[\[\]{}]", source.text):
        depth += 1 if bracket.group() in "[{" else -1
        if depth > 5 * MAX_DEPTH:
            _refuse_depth(source, report)


def _refuse_depth(source: Source, report: Report, span: Span | None = None) -> None:
    location = source.location(span or Span())
    report.error("too-large", f"values are nested more than {MAX_DEPTH} deep", location=location)
    raise Unreadable from None


@cache
def _yaml() -> YAML:
    yaml = YAML(typ="safe", pure=True)
    yaml.composer.warn_double_anchors = False  # YAML allows an anchor to be set again
    return yaml


def scalar(text: str) -> Any:
    """What `text` means as a plain scalar."""
    return compose(Source("", text, Path()), Report()).value


@define(repr=False, eq=False)
class _Builder:
    """ruamel's graph to a tree: aliases are spread out, up to a limit."""

    source: Source
    report: Report
    count: int = 0

    def node(self, composed: Any, key: Span | None = None, depth: int = 0) -> Node:
        span = _span(composed)
        self.count += 1
        if depth > MAX_DEPTH:
            _refuse_depth(self.source, self.report, span)
        if self.count > MAX_VALUES:
            message = f"more than {MAX_VALUES} values once aliases are spread out"
            self.report.error("too-large", message, location=self.source.location(span))
            raise Unreadable
        quoted = isinstance(composed, ScalarNode) and composed.style is not None
        return Node(self._value(composed, depth + 1), self.source, span, key, quoted)

    def _value(self, composed: Any, depth: int) -> Any:
        tag = str(composed.tag)
        if isinstance(composed, MappingNode) and tag == _STANDARD + "map":
            return self._mapping(composed, depth)
        if isinstance(composed, SequenceNode) and tag == _STANDARD + "seq":
            return [self.node(item, depth=depth) for item in composed.value]
        if isinstance(composed, ScalarNode) and tag in _TEXT_TAGS:
            return composed.value
        if isinstance(composed, ScalarNode) and tag in _PLAIN_TAGS:
            return self._scalar(composed)
        shown = tag.replace(_STANDARD, "!!")
        self._error("unknown-tag", f"the tag {shown} means nothing here", composed, "remove the tag")
        return UNKNOWN

    def _scalar(self, composed: ScalarNode) -> Any:
        if octal := _OCTAL.fullmatch(composed.value):
            message = f"{composed.value} is octal in YAML 1.1 and decimal in YAML 1.2"
            sign, digits = octal.groups()
            self._error("ambiguous-number", message, composed, f"write {sign}{digits}, or {sign}0o{digits}")
            return UNKNOWN
        try:
            value = _yaml().constructor.construct_object(composed)
        except (ValueError, KeyError, OverflowError, YAMLError):
            kind = str(composed.tag).removeprefix(_STANDARD)
            self._error("bad-value", f"{_short(composed.value)} cannot be read as {kind}", composed)
            return UNKNOWN
        if isinstance(value, int) and not -(2**63) <= value < 2**64:  # no message to a worker can hold it
            self._error("bad-value", f"{_short(composed.value)} has more than 64 bits", composed)
            return UNKNOWN
        return value

    def _mapping(self, composed: MappingNode, depth: int) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in composed.value:
            if str(key.tag) == _STANDARD + "merge":
                merged.update(self._merge_key(value, depth))
            elif not isinstance(key, ScalarNode) or str(key.tag) not in _TEXT_TAGS:
                self._error("bad-key", f"a key must be a text, not {_kind(key)}", key, _key_hint(key, value))
            elif key.value in mapping:
                first = mapping[key.value].key or Span()
                self._error("duplicate-key", f"{key.value} is given twice", key, f"first on line {first.line + 1}")
            else:
                mapping[key.value] = self.node(value, _span(key), depth)
        return {**merged, **mapping}

    def _merge_key(self, composed: Any, depth: int) -> dict[str, Node]:
        """`<<: *base` or `<<: [*first, *second]`, the earlier one winning."""
        found = self.node(composed, depth=depth)
        parts = found.value if isinstance(found.value, list) else [found]
        merged: dict[str, Node] = {}
        for part in reversed(parts):
            if not isinstance(part.value, dict):
                self._error("bad-type", "`<<` takes a mapping, or a list of mappings", composed)
                return {}
            merged.update(part.value)
        return merged

    def _error(self, code: str, message: str, composed: Any, hint: str | None = None) -> None:
        self.report.error(code, message, hint=hint, location=self.source.location(_span(composed)))


def _span(composed: Any) -> Span:
    start, end = composed.start_mark, composed.end_mark
    one_line = start.line == end.line and isinstance(composed, ScalarNode)
    return Span(start.line, start.column, end.column - start.column if one_line else 1)


def _kind(composed: Any) -> str:
    if isinstance(composed, ScalarNode):
        return f"`{_short(composed.value)}`"
    return "a mapping" if isinstance(composed, MappingNode) else "a list"


def _key_hint(key: Any, value: Any) -> str:
    """Braces make a key of what is a number's end after a comma, or a template's name."""
    if not isinstance(key, ScalarNode):
        return "quote a text that holds braces"
    empty = key.value.isdecimal() and not value.value
    return "quote it; a number is written without commas" if empty else "quote it"


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:37] + "..."


def _beginning(path: str) -> bytes:
    """The file, or as much of an endless one as shows that it is too large."""
    with Path(path).open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _decode(raw: bytes, path: str, report: Report) -> str:
    if len(raw) > MAX_BYTES:
        message = f"{path} has more than {MAX_BYTES} bytes, which is beyond any spec"
        report.error("too-large", message, location=Location(path, 1, 1))
        raise Unreadable
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        before = raw[raw.rfind(b"\n", 0, error.start) + 1 : error.start].decode("utf-8-sig")
        message = f"byte 0x{raw[error.start]:02X} is not UTF-8"
        location = Location(path, line, len(before) + 1)
        report.error("encoding", message, hint=_encoding_hint(raw), location=location)
        raise Unreadable from None


def _encoding_hint(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "the file is UTF-16: save it as UTF-8"
    return "this is no text file: name the YAML file" if b"\0" in raw else "save the file as UTF-8"


def _neighbours(path: str) -> str | None:
    """A file of nearly that name beside it."""
    folder = Path(path).parent
    names = {p.stem: p.name for p in folder.glob("*.y*ml")} if folder.is_dir() else {}
    near = nearest(Path(path).stem, names)
    return f"did you mean `{folder / names[near]}`?" if near else None


def _refuse_directives(source: Source, report: Report) -> None:
    found = re.search(r"^%(?!YAML[ \t]+1\.2\s)\S*", source.text, re.MULTILINE)
    if found and not source.text[: found.start()].strip("\ufeff \t\r\n"):
        message = f"{found.group()} directives are not supported; a spec is YAML 1.2"
        report.error("yaml-syntax", message, hint="remove the line", location=source.at_offset(found.start()))
        raise Unreadable


def _character(error: ReaderError) -> str:
    return error.character if isinstance(error.character, str) else chr(error.character)


def _problem(error: MarkedYAMLError) -> str:
    context = f"{error.context}: " if error.context else ""
    return f"{context}{error.problem}".replace("'\\t'", "TAB").replace("but but", "but")


def _mark(error: MarkedYAMLError, source: Source) -> Location:
    """Where the reader stumbled; for something left open, where it was opened."""
    mark = error.problem_mark or error.context_mark
    if error.context_mark is not None and re.search("end of stream|<stream end>", error.problem or ""):
        mark = error.context_mark
    return source.location(Span(mark.line, mark.column) if mark else Span())


def _syntax_hint(error: MarkedYAMLError, source: Source) -> str | None:
    problem, line = error.problem or "", _mark(error, source).excerpt
    for found, hint in _SYNTAX_HINTS:
        if found in problem or found in line:
            return hint
    return None


_SYNTAX_HINTS = (
    ("${", "quote a text that holds `${...}` inside `{}` or `[]`"),
    ("'\\t'", "use spaces, not tabs"),
    ("mapping values", "keys of one section stand in one column with `: ` after them; quote a text that holds `: `"),
    ("sequence entries", "put the list's `- ` on a line of its own"),
    ("expected <block end>", "keys of one section stand in one column"),
    ("unexpected end of stream", "close the quote"),
    ("cannot start any token", "quote the value"),
    ("expected ',' or", "close the bracket, and put `, ` between values"),
    ("unknown escape", "use single quotes for a text with backslashes"),
    ("undefined alias", "set the anchor (`&name`) above its first use, or quote a text that starts with `*`"),
    ("another document", "a spec is one document: remove the second `---`"),
    ("could not find expected ':'", "write `key: value`, with a space after the colon"),
)
