"""What is asked of every component, whatever its kind: an honest description, at no cost until it is used."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

import attrs
import pytest

from areal_core import API_VERSION
from areal_core.contexts import ModuleRef, Place
from areal_core.descriptors import KINDS, Component
from areal_core.manager import HEAVY
from areal_core.requirements import pip_line, unmet_requirements
from areal_core.workers.build import load
from areal_core.workers.message import Kind, Packer, Unpacker
from areal_plugins.testing.conformance import loading
from areal_plugins.testing.conformance.subject import Case, Subject, installed

__all__ = ["Case", "Conformance", "Subject"]

LONGEST_SUMMARY = 120


class Conformance:
    """Subclass the class of your component's kind and override `component`; pytest collects the rules.

    Each rule is a test method, and its docstring says what it demands. Class attributes are
    tolerances that a subclass may state otherwise.
    """

    kind: ClassVar[str] = ""

    @pytest.fixture
    def component(self) -> str | Component[Any] | Case:
        """The component under test: `"kind/name"`, a descriptor, or a `Case` with options of either."""
        raise NotImplementedError("override the fixture `component`, for instance to return 'engine/mine'")

    @pytest.fixture
    def subject(self, component: str | Component[Any] | Case) -> Subject:
        """The component, found."""
        return Subject.of(self.kind, component)

    @pytest.fixture
    def place(self, subject: Subject) -> Place:
        """A device that the component declares: the CPU where it can, else the first one that is here."""
        platforms = subject.descriptor.platforms
        if not platforms or "cpu" in platforms:
            return Place()
        for name in platforms:
            found = installed().find("platform", name)
            if found is not None and Subject(found.descriptor).build(None).count():
                return Place(device=found.descriptor.capabilities.device, devices=(0,))
        pytest.skip(f"{subject.title} runs on {', '.join(platforms)}, and none is here")

    # --- the descriptor ----------------------------------------------------------------------------

    def test_descriptor_is_of_its_kind(self, subject: Subject) -> None:
        """The descriptor is of the class that belongs to its kind, and has a name that a spec can write."""
        kind = KINDS[self.kind] if self.kind else KINDS[subject.descriptor.kind]
        assert isinstance(subject.descriptor, kind), f"it is a {type(subject.descriptor).__name__}, not {kind.__name__}"
        name = subject.descriptor.name
        assert name.strip(), "its name is empty"
        assert not any(c.isspace() or c in "/:" for c in name), f"its name {name!r} has a space, / or :"

    def test_summary_says_what_it_is(self, subject: Subject) -> None:
        """The summary is one line of text."""
        summary = subject.descriptor.summary
        assert summary.strip(), "its summary is empty"
        assert "\n" not in summary, "its summary is more than one line"
        assert len(summary) <= LONGEST_SUMMARY, f"its summary has more than {LONGEST_SUMMARY} characters"

    def test_api_version_is_this_one(self, subject: Subject) -> None:
        """It is written for the plugin API that is installed."""
        found = subject.descriptor.api_version
        assert found == API_VERSION, f"it is written for plugin API {found}, installed is {API_VERSION}"

    def test_requirements_are_met(self, subject: Subject) -> None:
        """`requires` are PEP 508 requirements, and what they name is installed."""
        unmet = unmet_requirements(subject.descriptor.requires)
        assert not unmet, f"{'; '.join(unmet)}: {pip_line(subject.descriptor.requires)}"

    def test_capabilities_are_of_the_kind(self, subject: Subject) -> None:
        """Capabilities are the kind's own record, and each value is one that the kind knows."""
        capabilities = subject.descriptor.capabilities
        expected = type(subject.descriptor).default_capabilities.__class__
        assert isinstance(capabilities, expected), (
            f"its capabilities are a {type(capabilities).__name__}, not {expected.__name__}"
        )
        for name, kind in get_type_hints(expected).items():
            value = getattr(capabilities, name)
            assert _is_a(value, kind), f"capability {name} is {value!r}, which is no {_spelt(kind)}"

    # --- its options -------------------------------------------------------------------------------

    def test_options_are_frozen(self, subject: Subject) -> None:
        """The options class is a frozen attrs class."""
        options = subject.descriptor.options
        assert attrs.has(options), f"its options {options.__name__} are no attrs class"
        assert _is_frozen(options), f"its options {options.__name__} can be changed: use attrs.frozen"

    def test_options_are_documented(self, subject: Subject) -> None:
        """Every option says what it is for (`metadata={"doc": ...}`)."""
        bare = [field.name for field in attrs.fields(subject.descriptor.options) if not field.metadata.get("doc")]
        assert not bare, f"options without metadata={{'doc': ...}}: {', '.join(bare)}"

    def test_options_are_typed(self, subject: Subject) -> None:
        """Every option has a type that says what a spec may give: not `Any`, nor a name that does not resolve."""
        hints = get_type_hints(subject.descriptor.options)
        loose = [f.name for f in attrs.fields(subject.descriptor.options) if hints.get(f.name, Any) in (Any, object)]
        assert not loose, f"options of any type: {', '.join(loose)}"

    def test_unknown_options_are_refused(self, subject: Subject) -> None:
        """An option that does not exist is an error, never ignored."""
        refused = False
        try:
            Subject(subject.descriptor, {**subject.given, "no_such_option": 1}, subject.files).options  # noqa: B018
        except Exception:  # whatever strict structuring raises
            refused = True
        assert refused, "its options take the key 'no_such_option' without a word"

    def test_options_cross_to_a_worker(self, subject: Subject) -> None:
        """The options reach another process, as a spec and a run's plan write them, and are the same there."""
        here = subject.options
        arrived = _sent(subject.ref)
        there = Subject(subject.descriptor, arrived.options, subject.files).options
        assert here == there, f"{here} is {there} in a worker"

    # --- its code ----------------------------------------------------------------------------------

    def test_factory_can_be_called(self, subject: Subject) -> None:
        """`factory` names something that can be imported and called."""
        assert callable(load(subject.ref)), f"{subject.descriptor.factory} cannot be called"

    def test_loading_imports_nothing_heavy(self, subject: Subject) -> None:
        """A fresh interpreter that loads the plugin, its descriptors and options imports nothing heavy;
        after that alone the factory can be imported."""
        found = _loaded_afresh(subject)
        assert not found["heavy"], f"loading {found['module']} imports {', '.join(found['heavy'])}"
        assert not found["problem"], f"a fresh process cannot import its factory: {found['problem']}"


def _is_a(value: Any, kind: Any) -> bool:
    """Whether `value` is one that the annotation `kind` of a capability admits."""
    origin, members = get_origin(kind), get_args(kind)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(item, members[0]) for item in value)
    if members and origin is not None and not isinstance(origin, type):  # Literal
        return value in members
    if members:  # a union
        return any(_is_a(value, member) for member in members)
    return type(value) is kind


def _spelt(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind).replace("typing.", "")


def _is_frozen(options: type[Any]) -> bool:
    """attrs gives a frozen class a `__setattr__` that raises, whatever the name."""
    instance = object.__new__(options)
    try:
        instance.anything = 1
    except attrs.exceptions.FrozenInstanceError:
        return True
    except AttributeError:
        return False
    return False


def _sent(ref: ModuleRef) -> ModuleRef:
    head, parts, _ = Packer().pack(Kind.CALL, 1, "setup", ref)
    unpacker = Unpacker()
    arrived: ModuleRef = unpacker.payload(
        unpacker.message(memoryview(head)), ModuleRef, memoryview(b"".join(map(bytes, parts)))
    )
    return arrived


def _loaded_afresh(subject: Subject) -> dict[str, Any]:
    module = subject.plugin_module()
    order = {
        "path": [str(Path(entry or ".").resolve()) for entry in sys.path],
        "module": module.__name__,
        "file": module.__file__,
        "files": subject.files,
        "kind": subject.descriptor.kind,
        "name": subject.descriptor.name,
        "heavy": HEAVY,
    }
    command = [sys.executable, "-c", Path(loading.__file__).read_text(encoding="utf-8"), json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own interpreter
    assert done.returncode == 0, f"a fresh process cannot load {module.__name__}: {_last(done.stderr.splitlines())}"
    found: dict[str, Any] = json.loads(_last(done.stdout.splitlines()))
    return found


def _last(lines: Iterable[str]) -> str:
    return next(iter(reversed([line for line in lines if line.strip()])), "")
