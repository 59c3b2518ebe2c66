"""Writes the tables of `docs/spec.md` and `docs/plugins.md` from the code they describe: `python docs/reference.py`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attrs import NOTHING, Factory, fields, has

from areal_core import contexts, data, hookspecs, protocols
from areal_core.descriptors import KINDS, CheckContext
from areal_core.errors import Finding
from areal_core.hookspecs import COMPONENT_HOOKS
from areal_core.spec import forms, model
from areal_core.spec.sections import PRIVATE
from areal_plugins.cli.inventory import BOUNDS

PAGES = [Path(__file__).with_name(name) for name in ("spec.md", "plugins.md")]
OBSERVERS = [name for name in vars(hookspecs) if name.startswith("areal_") and name not in COMPONENT_HOOKS.values()]
RECORDS = (data.Task, data.Message, data.Reply, data.Sample, data.Score, CheckContext, Finding)


def tables(page: str) -> str:
    """The page with what stands between `<!-- table: NAME -->` and `<!-- end -->` made anew."""
    return re.sub(
        r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)",
        lambda match: match[1] + "\n".join(table(match[2])) + "\n" + match[3],
        page,
        flags=re.DOTALL,
    )


def table(name: str) -> Iterator[str]:
    """The rows of a class's keys, of the hooks, or of what a kind of component is."""
    if name in ("hooks", "observers"):
        yield from hooks(name)
        return
    if name == "session":
        yield from ("| `Session` | what it does |", "|---|---|", *methods(protocols.Session))
        return
    if name == "records":
        yield from records()
        return
    if name.startswith("kind_"):
        yield from kind(name.removeprefix("kind_"))
        return
    cls = getattr(model, name)
    yield from ("| key | value | default | meaning |", "|---|---|---|---|")
    for f in fields(cls):
        if f.name not in PRIVATE and f.name != "overrides":
            value = escaped(words(f, forms.hints(cls)[f.name]))
            yield f"| `{f.name}` | {value} | {default(f)} | {escaped(f.metadata.get('doc', ''))} |"


def words(f: Any, form: Any) -> str:
    """The type and its bounds."""
    bounds = [f"{text} {f.metadata[key]:g}" for key, text in BOUNDS.items() if key in f.metadata]
    return ", ".join([forms.describe(form), *bounds])


def default(f: Any) -> str:
    """The default as YAML; a dash where the key must be given, or is a section of its own."""
    value = f.default.factory() if isinstance(f.default, Factory) else f.default
    if value is NOTHING or has(type(value)):
        return "-"
    if isinstance(value, tuple):
        return f"`[{', '.join(getattr(item, 'type', item) for item in value)}]`"
    spelled = {None: "null", True: "true", False: "false"}
    return f"`{spelled[value] if value is None or isinstance(value, bool) else value}`"


def escaped(text: str) -> str:
    """Text that may stand in a table's cell."""
    return text.replace("|", "\\|")


def hooks(which: str) -> Iterator[str]:
    """The hooks that return components, or those that observe a run, as `hookspecs.py` has them."""
    if which == "hooks":
        yield from ("| hook | returns | what they are |", "|---|---|---|")
        for of, name in COMPONENT_HOOKS.items():
            hook = getattr(hookspecs, name)
            yield f"| `{name}()` | `Iterable[{KINDS[of].__name__}]` | {sentence(hook)} |"
        return
    yield from ("| hook | called when |", "|---|---|")
    for name in OBSERVERS:
        hook = getattr(hookspecs, name)
        yield f"| `{name}{signature(hook)}` | {sentence(hook)} |"


def records() -> Iterator[str]:
    """What the components that are written most often take and make."""
    yield from ("| record | fields | what it is |", "|---|---|---|")
    for cls in RECORDS:
        yield f"| `{cls.__name__}` | {', '.join(f'`{f.name}`' for f in fields(cls))} | {sentence(cls)} |"


def kind(name: str) -> Iterator[str]:
    """What a kind's descriptor, factory and live component are."""
    descriptor = KINDS[name]
    call = re.search(r"Factory: `\(options, (\w+)\) -> ([\w.]+)`", descriptor.__doc__ or "")
    assert call is not None, f"{descriptor.__name__} does not say what its factory is called with"
    context, made = call[1], call[2].removeprefix("protocols.")
    yield from ("| | |", "|---|---|")
    yield f"| hook | `{COMPONENT_HOOKS[name]}` |"
    yield f"| descriptor | `{descriptor.__name__}` |"
    yield f"| factory | `(options, {context}) -> {made}` |"
    if hasattr(contexts, context):
        cls = getattr(contexts, context)
        yield f"| context | {', '.join(f'`{f.name}`' for f in fields(cls))}. {escaped(flat(cls.__doc__))} |"
    capabilities = type(descriptor.default_capabilities)
    defaults = ", ".join(f"`{f.name}`: {default(f)}" for f in fields(capabilities))
    yield f"| capabilities | {defaults}. {escaped(flat(capabilities.__doc__))} |"
    yield f"| conformance | `{name.capitalize()}Conformance` |"
    if hasattr(protocols, made):
        yield from ("", f"| `{made}` | what it must do |", "|---|---|")
        yield from methods(getattr(protocols, made))


def methods(cls: Any) -> Iterator[str]:
    """A protocol's methods."""
    for name, method in vars(cls).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            start = "async " if inspect.iscoroutinefunction(method) else ""
            yield f"| `{start}{name}{escaped(signature(method))}` | {escaped(flat(method.__doc__))} |"


def signature(function: Callable[..., Any]) -> str:
    """Arguments and result as the source spells them, without `self`."""
    found = inspect.signature(function)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = [p for p in found.parameters.values() if p.name != "self"]
    arguments = [f"{stars.get(p.kind, '')}{p.name}: {p.annotation}" for p in parameters]
    return f"({', '.join(arguments)})" + (f" -> {found.return_annotation}" if found.return_annotation != "None" else "")


def sentence(thing: Any) -> str:
    """A docstring in one line."""
    return escaped(flat(thing.__doc__))


def flat(text: str | None) -> str:
    """A docstring's words, paragraphs and all, in one line."""
    return " ".join((text or "").split())


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(tables(path.read_text()))
