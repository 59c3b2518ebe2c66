"""Plain data into the model's classes: strictly, with every finding and not only the first.

Nothing is coerced: `'false'` is no bool, `1.9` and `'5'` are no int, `true` is no number; only an
int may stand for a float. A field's metadata may hold `ge`, `gt`, `le`, `lt` (bounds), and `path`:
`True` for a file or directory that must exist, `"maybe"` for a text that may also be a name. Either
is made absolute from the directory of the file that it is written in. `name: True` is for texts
that become part of a file's name.

This is a walk of our own, because one that takes defaults for what is wrong, so that the rest is
still checked, would override every hook of a converter; and it is there in a tenth of the time.
cattrs reads the types that are not handled here.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import attrs
from attrs import NOTHING, Attribute, define, field, frozen

from areal_core.spec import forms, paths
from areal_core.spec.catalog import Catalog
from areal_core.spec.findings import Report, nearest
from areal_core.spec.model import Spec
from areal_core.spec.node import UNKNOWN, Node, SpecPath, plain
from areal_core.spec.sections import AUTO, PRIVATE, Section, section_at
from areal_core.spec.suggest import type_hint, unknown_key_hint

FAILED: Any = type("Failed", (), {"__repr__": lambda _: "FAILED"})()
"""In place of a value that is wrong or unknown; its field takes the default."""

NAME = r"(?!\.)[^/\\\x00-\x1f]+"
"""A text that can be a file's name."""

_BOUNDS: dict[str, tuple[Callable[[float, float], bool], str]] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "more than"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "less than"),
}


@frozen(repr=False, eq=False)
class Part:
    """A component as the spec chooses it. `options` is None where it cannot be had or is wrong.

    `path` is its section, `options_path` where its private options stand; `written` tells a choice
    from a default; `raw` are its options as written.
    """

    kind: str
    name: str
    path: SpecPath
    options_path: SpecPath
    written: bool
    descriptor: Any = None
    options: Any = None
    raw: Mapping[str, Any] = field(factory=dict)


@frozen(repr=False, eq=False)
class Structured:
    """A spec in classes. `failed` are the paths whose values are not the spec's but defaults.

    `blocks` are the options of every installed component that has a block.
    """

    spec: Spec
    parts: Mapping[SpecPath, Part]
    blocks: Mapping[SpecPath, Any]
    failed: frozenset[SpecPath]

    def part(self, *path: str | int) -> Part:
        """The part at `path`; one without a component where the section itself is wrong."""
        return self.parts.get(path) or Part("", "", path, path, written=True)

    def trusted(self, *paths: SpecPath) -> bool:
        """Whether nothing at, above or below these paths is wrong by itself."""
        return not any(a[: len(b)] == b[: len(a)] for a in self.failed for b in paths)


def structure(tree: Node, catalog: Catalog) -> Structured:
    """The tree as a `Spec`, with findings in the catalog's report."""
    walk = _Walk(tree, catalog, catalog.report)
    spec = walk.value(plain(tree), Spec, (), {})
    assert isinstance(spec, Spec)  # every field of it has a default
    return Structured(spec, walk.parts, walk.blocks, frozenset(walk.failed))


@define(repr=False, eq=False)
class _Walk:
    tree: Node
    catalog: Catalog
    report: Report
    parts: dict[SpecPath, Part] = field(factory=dict)
    blocks: dict[SpecPath, Any] = field(factory=dict)
    failed: set[SpecPath] = field(factory=set)

    def value(self, data: Any, form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Any:
        """`data` as `form`, or FAILED once reported."""
        if data is UNKNOWN:
            return self._failed(path)
        if form is Any:
            return data
        if forms.is_union(form):
            return self._union(data, form, path, limits)
        if attrs.has(form):
            return self._class(data, form, path)
        if forms.shape(data) not in (forms.shapes(form) or (forms.shape(data),)):
            return self._wrong_type(data, form, path, doc=limits.get("doc", ""))
        if forms.is_literal(form):
            return self._literal(data, form, path)
        if forms.is_sequence(form):
            return self._sequence(data, form, path, limits)
        if forms.is_mapping(form):
            return self._mapping(data, form, path, limits)
        return self._scalar(data, form, path, limits)

    # --- values ------------------------------------------------------------------------------------

    def _scalar(self, data: Any, form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Any:
        if form in (int, float):
            return self._number(data, form, path, limits)
        if form in (str, Path):
            return self._text(data, form, path, limits)
        return data if form in (bool, type(None)) else self._foreign(data, form, path)

    def _text(self, data: str, form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Any:
        if limits.get("name") and not re.fullmatch(NAME, data):
            message = f"{_dotted(path)} must be usable as a file's name, without slashes and leading dots"
            return self._failed(path, "bad-value", message)
        if limits.get("path") and not data:
            return self._failed(path, "bad-value", f"{_dotted(path)} must name a path, not an empty text")
        return form(self._path(data, path, limits["path"]) if limits.get("path") else data)

    def _number(self, data: float, form: type[int] | type[float], path: SpecPath, limits: Mapping[str, Any]) -> Any:
        try:
            number = form(data)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            return self._failed(path, "not-finite", f"{_dotted(path)} must be finite, not {forms.show(data)}")
        if form is int and not -(2**63) <= number < 2**63:
            return self._failed(path, "out-of-range", f"{_dotted(path)} must fit in 64 bits")
        for name, (holds, words) in _BOUNDS.items():
            if name in limits and not holds(number, limits[name]):
                message = f"{_dotted(path)} must be {words} {limits[name]:g}, not {forms.show(data)}"
                return self._failed(path, "out-of-range", message)
        return number

    def _path(self, text: str, path: SpecPath, mode: bool | str) -> str:
        directory = self.tree.nearest(path)[0].source.directory
        found = paths.absolute(directory, text)
        exists = paths.exists(found)
        if mode == "maybe":
            return found if exists or text.startswith((".", "/", "~")) else text
        if not exists:
            message = f"{_dotted(path)}: there is no {text}"
            hint = None if found == text else f"it would be {found}"
            self.report.unavailable("no-such-path", message, path, hint)
        return found

    def _literal(self, data: Any, form: Any, path: SpecPath, among: Any = None) -> Any:
        if forms.contains(form, data):
            return data
        near = nearest(str(data), [str(value) for value in get_args(form)])
        message = f"{_dotted(path)} must be {forms.describe(among or form)}, not {forms.show(data)}"
        return self._failed(path, "bad-value", message, f"did you mean `{near}`?" if near else None)

    def _union(self, data: Any, form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Any:
        members = [member for member in get_args(form) if forms.shape(data) in (forms.shapes(member) or ("",))]
        members += [member for member in get_args(form) if not forms.shapes(member)]
        if isinstance(data, str):  # a section's bare name
            members += [member for member in get_args(form) if attrs.has(member) and section_at(path)]
        if not members:
            return self._wrong_type(data, form, path, doc=limits.get("doc", ""))
        literals = [member for member in members if forms.is_literal(member)]
        exact = [member for member in literals if forms.contains(member, data)]
        open_ended = [member for member in members if member not in literals]
        if not exact and not open_ended:
            return self._literal(data, literals[0], path, form)
        return self.value(data, [*exact, *open_ended][0], path, limits)

    def _sequence(self, data: list[Any], form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Any:
        kinds = get_args(form) or (Any, ...)
        as_list = get_origin(form) is list or form is list
        fixed = get_origin(form) is tuple and kinds[-1] is not ...
        if fixed and len(kinds) != len(data):
            return self._failed(path, "bad-value", f"{_dotted(path)} must have {len(kinds)} items, not {len(data)}")
        each = kinds if fixed else [kinds[0]] * len(data)
        pairs = zip(data, each, strict=True)
        items = [self.value(item, kind, (*path, index), limits) for index, (item, kind) in enumerate(pairs)]
        good = [item for item in items if item is not FAILED]
        if fixed and len(good) < len(items):
            return FAILED
        return good if as_list else tuple(good)

    def _mapping(self, data: dict[str, Any], form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Any:
        kind = (*get_args(form), Any, Any)[1]
        items = {key: self.value(item, kind, (*path, key), limits) for key, item in data.items()}
        return {key: item for key, item in items.items() if item is not FAILED}

    def _foreign(self, data: Any, form: Any, path: SpecPath) -> Any:
        """A type that a plugin's options use beyond the usual ones."""
        import cattrs  # rarely needed

        try:
            return cattrs.structure(data, form)
        except Exception as error:
            message = f"{_dotted(path)} cannot be read as {forms.describe(form)}: {error}"
            return self._failed(path, "bad-type", message)

    # --- classes -----------------------------------------------------------------------------------

    def _class(self, data: Any, cls: type[Any], path: SpecPath) -> Any:
        section = section_at(path)
        if section and section.cls is cls:
            return self._section(data, section, path, written=True)
        if not isinstance(data, dict):
            return self._wrong_type(data, cls, path)
        self._refuse_unknown(data, list(_fields(cls)), path)
        values = self._values(data, cls, path)
        made = values if values is FAILED else self._made(cls, values, path)
        return FAILED if made is None else made

    def _section(self, data: Any, section: Section, path: SpecPath, written: bool) -> Any:
        """A part of the spec that chooses a component, by a bare name or with options."""
        data = {section.selector: data} if isinstance(data, str) else data
        if not isinstance(data, dict):
            return self._wrong_type(data, section.cls, path, f" or the name of {_a(section.kind)}")
        common = {key: value for key, value in data.items() if key in section.common}
        private = {key: value for key, value in data.items() if key not in section.common}
        values = self._values(common, section.cls, path, PRIVATE)
        if values is FAILED or (*path, section.selector) in self.failed:
            return FAILED if values is FAILED else section.cls(**values)
        name = values.get(section.selector, section.default)
        choose = self._choose_from_blocks if section.blocks else self._choose_inline
        choose(section, name, private, path, written and section.selector in data)
        stored = {"blocks": private} if section.blocks else {"options": private}
        return section.cls(**values, **stored)

    def _choose_inline(
        self, section: Section, name: str, private: dict[str, Any], path: SpecPath, written: bool
    ) -> None:
        descriptor = self.catalog.find(section.kind, name, (*path, section.selector))
        options = None
        if descriptor is not None:
            valid = [*section.common, *_fields(descriptor.options)]
            self._refuse_unknown(private, valid, path)
            options = self._options(private, descriptor.options, path, name, written or bool(private))
        self.parts[path] = Part(section.kind, name, path, path, written, descriptor, options, private)

    def _choose_from_blocks(
        self, section: Section, name: str, private: dict[str, Any], path: SpecPath, written: bool
    ) -> None:
        valid = [*section.common, *self.catalog.manager.names(section.kind)]
        for block, data in private.items():
            self._block(section, block, data, path, valid)
        where = (*path, name)
        if section.auto and name == AUTO:
            self.parts[path] = Part(section.kind, name, path, path, written)
            return
        descriptor = self.catalog.find(section.kind, name, (*path, section.selector))
        options = self.blocks.get(where)
        if descriptor is not None and name not in private:
            options = self._options({}, descriptor.options, path, name, written)
        raw = private.get(name)
        raw = raw if isinstance(raw, dict) else {}
        self.parts[path] = Part(section.kind, name, path, where, written, descriptor, options, raw)

    def _block(self, section: Section, name: str, data: Any, path: SpecPath, valid: list[str]) -> None:
        """The private options of one component, chosen or not."""
        where = (*path, name)
        options = self.catalog.options_of(section.kind, name)
        if options is None and not self.catalog.known(section.kind, name):
            self._unknown_key(name, valid, path)
        elif data is UNKNOWN:
            self._failed(where)
        elif not isinstance(data, dict):
            self._wrong_type(data, dict, where)
        elif options is not None:
            self._refuse_unknown(data, list(_fields(options)), where)
            self.blocks[where] = self._options(data, options, where, name, written=True)

    def _options(self, data: dict[str, Any], cls: type[Any], path: SpecPath, name: str, written: bool) -> Any:
        """A component's options; None when they are wrong."""
        required = [key for key, f in _fields(cls).items() if f.default is NOTHING]
        if not written and required:
            message = f"the spec does not say which {_dotted(path)}: `{name}` needs `{'`, `'.join(required)}`"
            self.report.unavailable("incomplete", message, path, f"write {_dotted(path)}: {{type: {name}, ...}}")
            return None
        values = self._values(data, cls, path)
        return None if values is FAILED else self._made(cls, values, path)

    def _made(self, cls: type[Any], values: dict[str, Any], path: SpecPath) -> Any:
        """The instance; None, once reported, when the class itself refuses the values."""
        try:
            return cls(**values)
        except Exception as error:  # a plugin's own validator
            text = str(error.args[0]) if error.args else type(error).__name__
            self._failed(path, "bad-value", f"{_dotted(path)}: {text}")
            return None

    def _values(self, data: dict[str, Any], cls: Any, path: SpecPath, skip: tuple[str, ...] = ()) -> Any:
        """Arguments for `cls`; FAILED when one that it cannot do without is missing or wrong."""
        values, complete = {}, True
        types = forms.hints(cls)
        for key, f in _fields(cls).items():
            if key in skip:
                continue
            where = (*path, key)
            if key in data:
                found = self.value(data[key], types[f.name], where, f.metadata)
            elif (section := section_at(where)) and f.default is not None:
                found = self._section({}, section, where, written=False)
            elif (section := section_at((*where, 0))) and f.default:
                found = self._default_list(f.default, section, where)
            elif f.default is NOTHING:
                found = self._missing(key, cls, path)
            else:
                continue
            complete = complete and not (found is FAILED and f.default is NOTHING)
            if found is not FAILED:
                values[key] = found
        return values if complete else FAILED

    def _default_list(self, uses: tuple[Any, ...], section: Section, path: SpecPath) -> Any:
        """Components that are there unless the spec says otherwise."""
        names = enumerate(getattr(use, section.selector) for use in uses)
        return tuple(self._section(name, section, (*path, index), written=False) for index, name in names)

    # --- findings ----------------------------------------------------------------------------------

    def _failed(self, path: SpecPath, code: str = "", message: str = "", hint: str | None = None) -> Any:
        """FAILED, reported unless that was done where the value got lost."""
        self.failed.add(path)
        if code:
            node, missing = self.tree.nearest(path)
            variable = f" (from {node.origin})" if node.origin and not missing else ""
            self.report.error(code, message + variable, path, hint)
        return FAILED

    def _wrong_type(self, data: Any, form: Any, path: SpecPath, more: str = "", doc: str = "") -> Any:
        message = f"{_dotted(path)} must be {forms.describe(form)}{more}, not {forms.show(data)}"
        return self._failed(path, "bad-type", message, type_hint(data, form, doc))

    def _missing(self, key: str, cls: type[Any], path: SpecPath) -> Any:
        doc = _fields(cls)[key].metadata.get("doc")
        return self._failed((*path, key), "missing-key", f"{_dotted((*path, key))} is missing", doc)

    def _refuse_unknown(self, data: Mapping[str, Any], valid: list[str], path: SpecPath) -> None:
        for key in data:
            if key not in valid:
                self._unknown_key(key, valid, path)

    def _unknown_key(self, key: str, valid: list[str], path: SpecPath) -> None:
        where = (*path, key)
        self.failed.add(where)
        location = self.tree.nearest(where)[0].key_location
        hint = unknown_key_hint(key, valid, path)
        self.report.error("unknown-key", forms.printable(_dotted(where)), where, hint, location)


def _fields(cls: type[Any]) -> dict[str, Attribute[Any]]:
    """The fields of a class by their keys."""
    return {f.alias or f.name: f for f in attrs.fields(cls) if f.init}


def _dotted(path: SpecPath) -> str:
    return ".".join(str(part) for part in path) or "the spec"


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
