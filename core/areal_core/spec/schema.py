"""The spec as JSON Schema (draft 2020-12), with the options of the installed components.

It guides an editor; `check` decides. So a key is never required here: a parent file or the spec
above a stage may give it. Where no `type` is written, any component's options are accepted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from attrs import NOTHING, Factory, define, field, fields, has

from areal_core.known_plugins import KNOWN
from areal_core.manager import Manager
from areal_core.spec import forms
from areal_core.spec.catalog import options_problem
from areal_core.spec.model import FileSpec, Spec, StageSpec
from areal_core.spec.node import SpecPath
from areal_core.spec.resolved import unstructured
from areal_core.spec.sections import AUTO, PRIVATE, Section, section_at
from areal_core.spec.structure import NAME

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_TYPES: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
}

_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}

_ABSENT = "Not installed, so that its options are not known."

_VARIABLE: Schema = {"$ref": "#/$defs/variable"}


def schema(manager: Manager) -> Schema:
    """The schema of a spec file, as plain data."""
    build = _Build(manager)
    sections = build.properties(Spec, ())
    stage = {**sections, **build.properties(StageSpec, ("stages", "*"), ("overrides",))}
    file = build.properties(FileSpec, (), ("stages",))
    file["apiVersion"] |= {"const": "areal/v1"}
    stages = {"type": "array", "items": _object(stage), "description": fields(FileSpec).stages.metadata["doc"]}
    properties = {**file, "stages": {**stages, "default": []}, **sections}
    variable = {
        "description": "An environment variable, with or without a default.",
        "type": "string",
        "pattern": r"^\$\{env:[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}$",
    }
    return {
        "$schema": DRAFT,
        "title": "areal-plugins experiment",
        **_object(properties),
        "$defs": {"variable": variable, **dict(sorted(build.definitions.items()))},
    }


@define
class _Build:
    manager: Manager
    definitions: dict[str, Schema] = field(factory=dict)

    def properties(self, cls: Any, path: SpecPath, skip: Iterable[str] = PRIVATE) -> dict[str, Schema]:
        """The keys of a class, each with its description, default and bounds."""
        types = forms.hints(cls)
        return {
            (f.alias or f.name): self._field(f, types[f.name], (*path, f.name))
            for f in fields(cls)
            if f.name not in skip and f.init
        }

    def _field(self, f: Any, form: Any, path: SpecPath) -> Schema:
        found = dict(self.form(form, path, f.metadata))
        if doc := f.metadata.get("doc"):
            found["description"] = doc
        default = f.default.factory() if isinstance(f.default, Factory) else f.default  # type: ignore[arg-type]
        if default is not NOTHING and not has(type(default)) and not _holds_classes(default):
            found["default"] = unstructured(default)
        return found

    def form(self, form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Schema:
        """The schema of a type."""
        if form in _TYPES:
            bounds = {_BOUNDS[key]: limits[key] for key in _BOUNDS if key in limits and form in (int, float)}
            bounds |= {"pattern": NAME} if limits.get("name") and form is str else {}
            return _or_variable({**_TYPES[form], **bounds}) if form in (int, float, bool) else _TYPES[form]
        if get_origin(form) is Literal:
            return _or_variable({"enum": list(get_args(form))})
        if forms.is_union(form):
            return _any_of([self.form(member, path, limits) for member in get_args(form)])
        if has(form):
            return self._class(form, path)
        if forms.is_sequence(form):
            return self._sequence(form, path, limits)
        if forms.is_mapping(form):
            values = (*get_args(form), Any, Any)[1]
            return {"type": "object", "additionalProperties": self.form(values, path, limits)}
        return {}

    def _sequence(self, form: Any, path: SpecPath, limits: Mapping[str, Any]) -> Schema:
        kinds = get_args(form) or (Any,)
        if get_origin(form) is tuple and kinds[-1] is not ...:
            items = [self.form(kind, path, limits) for kind in kinds]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        return {"type": "array", "items": self.form(kinds[0], (*path, 0), limits)}

    def _class(self, cls: Any, path: SpecPath) -> Schema:
        section = section_at(path)
        section = section if section and section.cls is cls else None
        name = section.kind if section else f"{cls.__module__}.{cls.__name__}".removeprefix("areal_core.spec.model.")
        if name not in self.definitions:
            self.definitions[name] = {}  # a class may hold itself
            whole = self._section(section, path) if section else _object(self.properties(cls, path))
            self.definitions[name] = {"description": _summary(cls), **whole}
        return {"$ref": f"#/$defs/{name}"}

    def _section(self, section: Section, path: SpecPath) -> Schema:
        keys = self.properties(section.cls, path)
        selector = keys[section.selector]
        keys = self._shared(section.kind, keys if section.blocks else _without(keys, section.selector))
        installed = self.manager.names(section.kind)
        known = sorted({name for kind, name in KNOWN if kind == section.kind} - set(installed))
        bare = _or_variable({"enum": [*([AUTO] if section.auto else []), *installed, *known]})
        if section.blocks:
            self.definitions[f"{section.kind}.{section.selector}"].update(bare)
            blocks = {name: self._component(section.kind, name) for name in installed}
            strangers: dict[str, Schema] = {name: {"type": "object", "description": _ABSENT} for name in known}
            return _any_of([_object({**keys, **blocks, **strangers}), bare])
        return _any_of([*self._inline(section, keys, selector, installed, known), bare])

    def _inline(
        self, section: Section, keys: dict[str, Schema], selector: Schema, installed: list[str], known: list[str]
    ) -> Iterable[Schema]:
        """One alternative a component, one for those that are not installed, one without a name."""
        every: dict[str, Schema] = {}
        for name in installed:
            reference = self._component(section.kind, name)["$ref"]
            options = self.definitions[f"{section.kind}.{name}"]["properties"]
            references = {key: {"$ref": f"{reference}/properties/{key}"} for key in options}
            every |= {key: _any_of([every.get(key, found), found]) for key, found in references.items()}
            chosen = {"const": name, "description": self.definitions[f"{section.kind}.{name}"]["description"]}
            yield _object({**keys, section.selector: chosen, **references}, [section.selector])
        if known:
            named = {**keys, section.selector: {"enum": known, "description": _ABSENT}}
            yield {"type": "object", "properties": named, "required": [section.selector]}
        yield _object({**keys, section.selector: {**_without(selector, "type"), **_VARIABLE}, **every})

    def _shared(self, kind: str, properties: Mapping[str, Schema]) -> dict[str, Schema]:
        """References to the common keys of a kind, which stand in every alternative."""
        self.definitions |= {f"{kind}.{key}": dict(found) for key, found in properties.items()}
        return {key: {"$ref": f"#/$defs/{kind}.{key}"} for key in properties}

    def _component(self, kind: str, name: str) -> Schema:
        """A reference to a component's private options."""
        registered = self.manager.find(kind, name)
        known = registered is not None and not options_problem(registered.descriptor)
        properties = self.properties(registered.descriptor.options, ("options",), ()) if registered and known else {}
        summary = {"description": registered.descriptor.summary} if registered else {}
        self.definitions[f"{kind}.{name}"] = {**summary, **_object(properties)}
        return {"$ref": f"#/$defs/{kind}.{name}"}


def _without(mapping: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


def _object(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **needed}


def _any_of(members: Iterable[Schema]) -> Schema:
    """The alternatives, without nesting and repetition."""
    flat: list[Schema] = []
    for member in members:
        for alternative in member["anyOf"] if set(member) == {"anyOf"} else [member]:
            if alternative not in flat:
                flat.append(alternative)
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _or_variable(found: Schema) -> Schema:
    """A value, or an environment variable that will hold it."""
    return _any_of([found, _VARIABLE])


def _holds_classes(default: Any) -> bool:
    return isinstance(default, tuple) and any(has(type(item)) for item in default)


def _summary(cls: Any) -> str:
    return (cls.__doc__ or "").strip().partition("\n")[0]
