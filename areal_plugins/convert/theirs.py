"""A config of another framework as it was written: flat dotted keys, with references resolved.

Read are YAML files (sections or dotted keys), and Hydra overrides as they stand in a launch script:
`python -m verl.trainer.main_ppo data.train_batch_size=1024 \\ ...`. OmegaConf's `${a.b}` and `${.a}` are replaced by
what they refer to; `${oc.env:NAME}` becomes our `${env:NAME}`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from areal_core.errors import InputError, SpecError
from areal_core.spec.findings import Report
from areal_core.spec.load import Unreadable, compose, parse, read_source
from areal_core.spec.node import Node, Source, plain

_SWITCHES = {"yes": True, "on": True, "no": False, "off": False}
"""What YAML 1.1, which their loaders read, takes for true and false."""

_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w/@-]*(?:\.[\w/@-]+)*)=(.*)", re.DOTALL)
_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_DEPTH = 20


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
    leaves = overrides or dict(_leaves(root, ()))
    raw = {key: _value(node) for key, node in leaves.items()}
    values = {key: _resolved(value, key, {**defaults, **raw}) for key, value in raw.items()}
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


# --- a launch script ---------------------------------------------------------------------------------


def _overrides(source: Source) -> tuple[dict[str, Node], tuple[str, ...]]:
    """The overrides of a launch script, and its other words; neither where the text is YAML."""
    if not re.search(r"^\s*(python3?\s.*)?[+~]{0,2}[A-Za-z_][\w/@.-]*=", source.text, re.MULTILINE):
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
    return found, tuple(words)


def _words(line: str, source: Source, number: int) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError as error:
        raise InputError(f"{source.name}:{number + 1}", f"is no line of a shell: {error}") from None


def _override(text: str, source: Source, line: int) -> Node:
    text = _VARIABLE.sub(lambda match: f"${{env:{match[1] or match[2]}}}", text)
    try:
        node = compose(evolve(source, text=text or "null"), Report())
    except Unreadable:  # Hydra's own grammar allows what YAML does not
        node = Node(text, source)
    return evolve(node, span=evolve(node.span, line=line))


# --- references --------------------------------------------------------------------------------------


def _resolved(value: Any, key: str, values: Mapping[str, Any], depth: int = 0) -> Any:
    """`value` without references; one that leads nowhere stays as it is written."""
    if isinstance(value, list):
        return [_resolved(item, key, values, depth) for item in value]
    if not isinstance(value, str) or "${" not in value or depth > _DEPTH:
        return value
    if whole := _REFERENCE.fullmatch(value):
        return _target(whole, key, values, depth)
    return _REFERENCE.sub(lambda match: str(_target(match, key, values, depth)), value)


def _target(match: re.Match[str], key: str, values: Mapping[str, Any], depth: int) -> Any:
    inside = match[1]
    if inside.startswith("oc.env:"):
        name, comma, default = inside.removeprefix("oc.env:").partition(",")
        return f"${{env:{name.strip()}:-{default.strip()}}}" if comma else f"${{env:{name.strip()}}}"
    name, _, default = inside.removeprefix("oc.select:").partition(",")
    name = name.strip()
    if name.startswith("."):
        name = f"{key.rpartition('.')[0]}{name}".lstrip(".")
    if name in values:
        return _resolved(values[name], name, values, depth + 1)
    return _plain_text(default) if inside.startswith("oc.select:") else match[0]


def _plain_text(text: str) -> Any:
    try:
        return plain(compose(Source("", text.strip(), Path()), Report())) if text.strip() else None
    except Unreadable:
        return text
