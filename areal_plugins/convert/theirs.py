"""A config of another framework as it was written: flat dotted keys, with references resolved.

Read are YAML files (sections or dotted keys), and Hydra overrides as they stand in a launch script:
`python -m verl.trainer.main_ppo data.train_batch_size=1024 \\ ...`. OmegaConf's `${a.b}` and `${.a}` are replaced by
what they refer to; `${oc.env:NAME}` becomes our `${env:NAME}`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from areal_core.errors import InputError, SpecError
from areal_core.spec.findings import Report
from areal_core.spec.load import Unreadable, compose, parse, read_source, scalar
from areal_core.spec.node import Node, Source, plain
from areal_core.spec.secrets import without_secrets

_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
"""What YAML 1.1, which their loaders read, takes for true and false."""

_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w/@-]*(?:\.[\w/@-]+)*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(:-[^{}]*)?\}|([A-Za-z_]\w*))")
_HEADER = re.compile(r"([\w-]+): (.+)", re.DOTALL)
_DEPTH = 50
_ROOM = 1_000_000
"""Characters that references may bring in, over the whole config: a few that double each other grow without end."""


@frozen
class Facts:
    """What a config does not say: how many tasks its training set has, and how many processes its launcher starts."""

    tasks: int | None = None
    processes: int = 1


@frozen
class Theirs:
    """The config: `values` and `lines` by dotted key; `defaults` are those of the framework."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]
    defaults: Mapping[str, Any]
    facts: Facts = Facts()
    words: tuple[str, ...] = field(default=())
    """What of a launch script is no override."""

    def __getitem__(self, key: str) -> Any:
        """The value, or the framework's default where there is none, or a null."""
        value = self.values.get(key)
        return self.defaults.get(key) if value is None else value

    def __contains__(self, key: str) -> bool:
        return key in self.values

    def has(self, section: str) -> bool:
        """Whether anything but null is written in a section."""
        return any(key.startswith(section + ".") and value is not None for key, value in self.values.items())


def read(file: str, defaults: Mapping[str, Any], facts: Facts) -> Theirs:
    """The config in `file`.

    Raises:
        SpecError: it cannot be read, or is no config.
    """
    report = Report()
    try:
        source = read_source(file, report)
        overrides, words = _overrides(source)
        root = None if overrides else parse(source, report)
    except Unreadable:
        raise SpecError(report.findings) from None
    if report.findings:  # a value that cannot be read must not be carried
        raise SpecError(report.findings)
    leaves = overrides or dict(_leaves(root, ()))
    raw = {key: _value(node) for key, node in leaves.items()}
    references = _References({**defaults, **raw}, file)
    values = {key: _number(references.of(key), defaults.get(key)) for key in raw}
    lines = {key: node.span.line + 1 for key, node in leaves.items()}
    return Theirs(values, lines, defaults, facts, words)


def _leaves(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Node]]:
    """Every value under its dotted key; a list of plain values is one value."""
    value = node.value
    items: list[tuple[str, Node]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list) and any(isinstance(item.value, dict) for item in value):
        items = [(str(index), item) for index, item in enumerate(value)]
    if not items:
        yield ".".join(path), node
    for key, child in items:
        yield from _leaves(child, (*path, key))


def _value(node: Node) -> Any:
    value = plain(node)
    return value if node.quoted or not isinstance(value, str) else _SWITCHES.get(value.lower(), value)


def _number(value: Any, default: Any) -> Any:
    """A text where their default is a number: the number that it names, as their typed fields read it."""
    if not isinstance(value, str) or isinstance(default, bool) or not isinstance(default, int | float):
        return value
    try:
        named = scalar(value)
    except Unreadable:
        named = value
    return named if isinstance(named, int | float) and not isinstance(named, bool) else _NoNumber(value)


class _NoNumber(str):
    """A text where a number is due, as `${env:N}`: it may be carried, and not be repeated as often as a count says."""

    def __mul__(self, _: Any) -> Any:
        raise TypeError(f"{self} is no number")

    __rmul__ = __mul__


# --- a launch script ---------------------------------------------------------------------------------


def _overrides(source: Source) -> tuple[dict[str, Node], tuple[str, ...]]:
    """The overrides of a launch script, and its other words; neither where the text is YAML."""
    if not any(map(_assigns, source.lines)) or _is_mapping(source):
        return {}, ()
    found: dict[str, Node] = {}
    words: list[str] = []
    for number, line in enumerate(source.lines):
        for word in _words(line.rstrip().removesuffix("\\"), source, number):
            match = _OVERRIDE.fullmatch(word)
            if match:
                found[match[1]] = _override(match[2], source, number)
            else:
                words.append(word)
    return found, _without_secrets(words)


def _assigns(line: str) -> bool:
    return bool(
        re.match(r"\s*[+~]{0,2}[A-Za-z_][\w/@.-]*=", line) or ("=" in line and re.match(r"\s*python3?\s", line))
    )


def _is_mapping(source: Source) -> bool:
    """Whether it is YAML all the same, with a command in one of its texts."""
    try:
        return isinstance(compose(source, Report()).value, dict)
    except Unreadable:
        return False


def _without_secrets(words: list[str]) -> tuple[str, ...]:
    """The words as they may be shown: `--api-key=K`, `--token T` and `-H "Authorization: T"` masked."""
    masked = [without_secrets(word, before.lstrip("-")) for before, word in pairwise(["", *words])]
    return tuple(_HEADER.sub(_masked_header, word) for word in without_secrets(masked))


def _masked_header(header: re.Match[str]) -> str:
    return f"{header[1]}: {without_secrets(header[2], header[1])}"


def _words(line: str, source: Source, number: int) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise InputError(f"{source.name}:{number + 1}", f"is no line of a shell: {error}") from None


def _override(text: str, source: Source, line: int) -> Node:
    text, report = _VARIABLE.sub(lambda match: f"${{env:{match[1] or match[3]}{match[2] or ''}}}", text), Report()
    try:
        node = compose(evolve(source, text=text or "null"), report)
    except Unreadable:
        node = Node(text, source)
    if report.findings:  # Hydra's own grammar allows what YAML does not
        node = Node(text, source)
    return evolve(node, span=evolve(node.span, line=line))


# --- references --------------------------------------------------------------------------------------


@define
class _References:
    """The values without references, each resolved once; one that leads nowhere, or back, stays as it is written."""

    values: Mapping[str, Any]
    file: str
    known: dict[str, Any] = field(factory=dict)
    open: set[str] = field(factory=set)
    room: int = _ROOM

    def of(self, key: str) -> Any:
        """The value of `key`."""
        if key not in self.known:
            self.open.add(key)
            self.known[key] = self._resolved(self.values[key], key)
            self.open.remove(key)
        return self.known[key]

    def _resolved(self, value: Any, key: str) -> Any:
        if isinstance(value, list):
            return [self._resolved(item, key) for item in value]
        if not isinstance(value, str) or "${" not in value:
            return value
        if whole := _REFERENCE.fullmatch(value):
            return self._target(whole, key)
        return _REFERENCE.sub(lambda match: str(self._target(match, key)), value)

    def _target(self, match: re.Match[str], key: str) -> Any:
        inside = match[1]
        if inside.startswith("oc.env:"):
            name, comma, default = inside.removeprefix("oc.env:").partition(",")
            return f"${{env:{name.strip()}:-{default.strip()}}}" if comma else f"${{env:{name.strip()}}}"
        name, _, default = inside.removeprefix("oc.select:").partition(",")
        name = name.strip()
        if name.startswith("."):
            name = f"{key.rpartition('.')[0]}{name}".lstrip(".")
        if name in self.open or len(self.open) > _DEPTH:
            return match[0]
        if name in self.values:
            return self._brought_in(self.of(name), key)
        return _plain_text(default) if inside.startswith("oc.select:") else match[0]

    def _brought_in(self, value: Any, key: str) -> Any:
        self.room -= _size(value)
        if self.room < 0:
            raise InputError(self.file, f"the references of {key} bring in more than {_ROOM} characters")
        return value


def _size(value: Any) -> int:
    return 1 + sum(map(_size, value)) if isinstance(value, list) else len(str(value))


def _plain_text(text: str) -> Any:
    try:
        return plain(compose(Source("", text.strip(), Path()), Report())) if text.strip() else None
    except Unreadable:
        return text
