"""Every shipped spec, mutated: a mutant means what it says, or is answered with located findings.

300 mutants, or as many as the hypothesis profile `nightly` says.
"""

from __future__ import annotations

import copy
import io
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor

from areal_core.errors import Severity
from areal_core.known_plugins import KNOWN
from areal_core.manager import Manager
from areal_core.spec import Examined, examine
from areal_core.spec.schema import schema

SPECS = sorted((Path(__file__).parents[3] / "specs").glob("*.yaml"))
TEXTS = {path.stem: path.read_text() for path in SPECS}
CASES = max(300, settings.default.max_examples)
COMPONENTS = {name for _, name in KNOWN} | {"torch", "shm", "disk", "memory", "local", "inline", "cpu", "cuda"}
SELECTORS = ("type", "backend", "name")

NUMBERS = ["1e-6", "1e3", "010", "0o10", "0x1F", "1_000", "1:30", ".inf", "-.nan", "-1", "0", "1.5", "1e400", "9" * 20]
WORDS = ["", "~", "yes", "No", "on", "true", "torch", "auto", "vllm", "../x", "2024-01-01", "'5'", '"true"', "é", "٣"]
MARKS = [
    "[]",
    "{}",
    "[1, 2]",
    "{a: 1}",
    "&a x",
    "*a",
    "!!int 5",
    "!x y",
    "<<",
    "- 1",
    "a: b",
    "@x",
    "`x`",
    "%x",
    "|",
    ">",
]
BROKEN = ["${", "${env:AREAL_UNSET}", "${env:AREAL_UNSET:-7}", "'", '"', "#", "\u00a0", "\u200b7", "\ufeff"]
ODD = st.sampled_from([*NUMBERS, *WORDS, *MARKS, *BROKEN])
CHARACTERS = st.one_of(st.sampled_from("\t :#-[]{},&*!|>'\"%@`?\n\\$"), st.characters(codec="utf-8"))


# --- mutants of the text ---------------------------------------------------------------------------------


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """A line gone, doubled, moved, indented or cut; characters put in; a value replaced by an odd one."""
    lines = text.splitlines(keepends=True)
    index = draw(st.integers(0, len(lines) - 1))
    line = lines[index]
    match draw(st.sampled_from(["delete", "double", "move", "indent", "dedent", "cut", "insert", "value", "splice"])):
        case "delete":
            del lines[index]
        case "double":
            lines.insert(draw(st.integers(0, len(lines))), line)
        case "move":
            lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(index))
        case "indent":
            lines[index] = draw(st.sampled_from([" ", "  ", "\t", "\u00a0", "- "])) + line
        case "dedent":
            lines[index] = line.removeprefix(" ")
        case "cut":
            return text[: draw(st.integers(0, len(text)))]
        case "insert":
            at = draw(st.integers(0, len(line)))
            lines[index] = line[:at] + draw(st.text(CHARACTERS, min_size=1, max_size=3)) + line[at:]
        case "value":
            lines[index] = re.sub(r"(?<=: )[^\s,}\]]+", lambda _: draw(ODD), line, count=draw(st.integers(1, 2)))
        case "splice":
            other = draw(st.sampled_from(list(TEXTS.values())))
            return text[: draw(st.integers(0, len(text)))] + other[draw(st.integers(0, len(other))) :]
    return "".join(lines)


# --- mutants of the tree ---------------------------------------------------------------------------------

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 70), st.floats(allow_nan=False), st.text(max_size=5),
    st.sampled_from(["auto", "cpu", "torch", "grpo", "sft", "dp", [], {}, [1], {"type": "torch"}]),
)  # fmt: skip
NAMES = st.sampled_from(["type", "backend", "name", "max_steps", "seed", "weights"]) | st.text(min_size=1, max_size=6)


@st.composite
def restructured(draw: st.DrawFn, text: str) -> str:
    """A key gone, doubled under another name, renamed or misspelt; a value of another type, or two swapped."""
    tree = YAML(typ="safe").load(text)
    places = list(_places(tree))
    holder, key = draw(st.sampled_from(places))
    value = holder[key]
    match draw(st.sampled_from(["delete", "retype", "swap", "rename", "misspell", "duplicate"])):
        case "delete":
            del holder[key]
        case "retype":
            holder[key] = draw(VALUES)
        case "swap":
            other, there = draw(st.sampled_from(places))
            holder[key], other[there] = copy.deepcopy(other[there]), copy.deepcopy(value)
        case "rename" if isinstance(holder, dict):
            holder[draw(NAMES)] = holder.pop(key)
        case "misspell" if isinstance(holder, dict) and len(key) > 2:
            at = draw(st.integers(0, len(key) - 2))
            holder[key[:at] + key[at + 1] + key[at] + key[at + 2 :]] = holder.pop(key)
        case "duplicate" if isinstance(holder, dict):
            holder[draw(NAMES)] = copy.deepcopy(value)
        case _:
            holder.extend([copy.deepcopy(value)]) if isinstance(holder, list) else holder.pop(key)
    return dumped(tree)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from _places(node[key])


def dumped(tree: Any) -> str:
    stream = io.StringIO()
    YAML(typ="safe").dump(tree, stream)
    return stream.getvalue()


def mutants() -> st.SearchStrategy[tuple[str, str]]:
    """The name of a spec, and a mutant of it: one edit or two."""
    once = st.sampled_from(list(TEXTS)).flatmap(
        lambda name: st.tuples(st.just(name), edited(TEXTS[name]) | restructured(TEXTS[name]))
    )
    return once | once.flatmap(lambda pair: st.tuples(st.just(pair[0]), edited(pair[1] or "\n")))


# --- what must hold --------------------------------------------------------------------------------------


class World:
    """A folder like that of the shipped specs, the built-in components with theirs, and the schema of all."""

    def __init__(self, folder: Path, manager: Manager) -> None:
        self.folder, self.manager = folder, manager
        self.validator = jsonschema.Draft202012Validator(schema(manager))

    def examine(self, name: str, text: str) -> Examined:
        file = self.folder / f"{name}.yaml"
        file.write_bytes(text.encode())
        return examine(file, (), self.manager)


class _Texts(SafeConstructor):
    """A date is a text, as in JSON."""


_Texts.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
READER = YAML(typ="safe", pure=True)
READER.Constructor = _Texts


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("specs")
    for file in SPECS[0].parent.glob("*.py"):
        shutil.copy(file, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
        manager = Manager.discover([str(file) for file in folder.glob("*.py")])
    return World(folder, manager)


@settings(max_examples=CASES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(mutant=mutants())
def test_a_mutant_means_what_it_says_or_is_answered_with_located_findings(world, mutant):
    name, text = mutant
    examined = world.examine(name, text)
    assert_located(examined)
    if not any(f.severity is Severity.ERROR or f.code == "missing-variable" for f in examined.findings):
        written = READER.load(text)
        assert [error.message for error in world.validator.iter_errors(written)] == []
        assert_means(examined, written)


def assert_located(examined: Examined) -> None:
    assert examined.findings or examined.experiment
    for finding in examined.findings:
        assert finding.location is not None, finding
        assert finding.location.line >= 1, finding
        assert finding.location.column >= 1, finding
        assert finding.message


def assert_means(examined: Examined, written: dict[str, Any]) -> None:
    """Every value that is written is in the resolved spec, as it is written."""
    stages = written.pop("stages", None)
    for key in ("apiVersion", "plugins", "extends"):
        written.pop(key, None)
    assert_holds(examined.resolved, written, "spec")
    for index, stage in enumerate(stages or []):
        assert_holds({**examined.resolved, **examined.resolved["stages"][index]}, stage, f"stages.{index}")


def assert_holds(resolved: Any, written: Any, where: str) -> None:
    if isinstance(resolved, dict) and isinstance(written, str):
        assert written in (resolved.get(key) for key in SELECTORS), where
    elif isinstance(written, dict):
        for key, value in written.items():
            if key not in resolved and isinstance(value, dict) and key in COMPONENTS:
                continue  # a block of a component that is not chosen
            assert key in resolved, f"{where}.{key}"
            assert_holds(resolved[key], value, f"{where}.{key}")
    elif isinstance(written, list):
        assert len(resolved) == len(written), where
        for index, value in enumerate(written):
            assert_holds(resolved[index], value, f"{where}.{index}")
    elif not (isinstance(written, str) and ("${" in written or is_path(written, resolved))):
        same = type(resolved) is type(written) or (isinstance(resolved, float) and type(written) is int)
        assert same, f"{where}: {written!r} became {resolved!r}"
        assert resolved == written or (math.isclose(resolved, written)), where


def is_path(written: str, resolved: Any) -> bool:
    return isinstance(resolved, str) and resolved.startswith("/") and bool(written)


# --- mutants that mean the same --------------------------------------------------------------------------


def commented(text: str) -> str:
    return re.sub(r"$", "  # a remark", text, flags=re.M)


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def marked(text: str) -> str:
    return f"\ufeff---\n{text}...\n"


def in_blocks(text: str) -> str:
    """Block style throughout, keys sorted."""
    stream, yaml = io.StringIO(), YAML(typ="safe")
    yaml.default_flow_style = False
    yaml.dump(yaml.load(text), stream)
    return stream.getvalue()


def in_flow(text: str) -> str:
    """One flow mapping, as in JSON."""
    stream, yaml = io.StringIO(), YAML(typ="safe")
    yaml.default_flow_style = True
    yaml.dump(yaml.load(text), stream)
    return stream.getvalue()


def deeper(text: str) -> str:
    """What is indented stands further in."""
    return re.sub(r"^(?= )", "   ", text, flags=re.M)


@pytest.mark.parametrize("rewrite", [commented, crlf, marked, in_blocks, in_flow, deeper])
@pytest.mark.parametrize("name", TEXTS)
def test_a_spec_written_in_another_way_means_the_same(world, name, rewrite):
    plain, rewritten = (world.examine(name, text) for text in (TEXTS[name], rewrite(TEXTS[name])))
    assert plain.resolved == rewritten.resolved
    assert sorted(f.code for f in plain.findings) == sorted(f.code for f in rewritten.findings)
    assert not rewritten.errors
