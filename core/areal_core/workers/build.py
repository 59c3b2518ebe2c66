"""From a `ModuleRef` to a live component: the one place where a component's code is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from areal_core.contexts import ModuleRef
from areal_core.errors import ArealError, PluginError
from areal_core.importing import import_object
from areal_core.local import load_plugin
from areal_core.workers.faults import RAISED, blaming

if TYPE_CHECKING:
    from cattrs import Converter

    from areal_core.spec.experiment import Selected

Factory = Callable[[Any, Any], Any]


def make_ref(selected: Selected, files: Iterable[str] = ()) -> ModuleRef:
    """A reference that another process can build; the options become plain data, paths become text."""
    component, options = selected.component, selected.options
    kind = type(options)
    return ModuleRef(
        kind=component.kind,
        name=component.name,
        factory=component.factory,
        options_type=f"{kind.__module__}:{kind.__qualname__}",
        options=_converter().unstructure(options),
        files=tuple(files),
    )


def build(ref: ModuleRef, context: Any) -> Any:
    """The live component.

    Raises:
        PluginError: its module cannot be imported, or its options do not fit; names the component.
        ComponentError: its factory raised (errors raised on purpose pass as they are), or returned nothing.

    """
    factory, options = load(ref), _options(ref)
    with blaming(title(ref), "build"):
        if (made := factory(options, context)) is None:
            raise TypeError(f"its factory {ref.factory!r} returned None")
        return made


def load(ref: ModuleRef) -> Factory:
    """Import what `ref` needs, its `files` first, and return its factory."""
    import_files(ref.files)
    factory = _resolve(ref, ref.factory)
    if not callable(factory):
        raise PluginError(title(ref), f"its factory {ref.factory!r} cannot be called")
    made: Factory = factory
    return made


def title(ref: ModuleRef) -> str:
    """How errors name the component: `kind/name`."""
    return f"{ref.kind}/{ref.name}"


def structure(options: Mapping[str, Any], kind: type[Any]) -> Any:
    """An instance of the options class `kind`; strict: no unknown keys, nothing is coerced to another type."""
    return _converter().structure(options, kind)


def import_files(files: Iterable[str]) -> None:
    """Import the plugins that the spec names, in order.

    Raises:
        InputError: there is no such file. PluginError: its code raised; names the file.

    """
    for file in files:
        try:
            load_plugin(file)
        except ArealError:
            raise
        except RAISED as error:
            raise PluginError(file, f"cannot be imported: {type(error).__name__}: {error}") from error


def _resolve(ref: ModuleRef, dotted: str) -> Any:
    if ":" not in dotted:
        raise PluginError(title(ref), f"{dotted!r} is not of the form module:attr")
    try:
        return import_object(dotted)
    except ArealError:
        raise
    except RAISED as error:
        problem = f"cannot import {dotted!r}: {type(error).__name__}: {error}"
        raise PluginError(title(ref), problem, _way_out(error)) from error


def _way_out(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"install what provides {error.name.partition('.')[0]!r} for {sys.executable}"
    return ""


def _options(ref: ModuleRef) -> Any:
    from cattrs import transform_error

    kind = _resolve(ref, ref.options_type)
    try:
        return structure(ref.options, kind)
    except Exception as error:
        problems = "; ".join(transform_error(error, path="options"))
        raise PluginError(title(ref), f"its options do not fit {ref.options_type}: {problems}") from error


@cache
def _converter() -> Converter:
    from cattrs import Converter
    from cattrs.strategies import configure_union_passthrough

    converter = Converter(forbid_extra_keys=True)
    converter.register_unstructure_hook(PurePath, str)
    for kind in (str, int, float, bool, bytes):
        converter.register_structure_hook(kind, _exactly)
    converter.register_structure_hook(Path, lambda value, _: Path(_exactly(value, str)))
    configure_union_passthrough(str | int | float | bool | bytes | None, converter)
    return converter


def _exactly(value: Any, kind: type[Any]) -> Any:
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, not {value!r}")
    return value
