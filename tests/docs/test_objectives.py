"""docs/objectives.md against the descriptors it describes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from areal_plugins import ObjectiveDescriptor
from areal_plugins.builtin.objectives import DESCRIPTORS
from areal_plugins.builtin.objectives.options import PolicyOptions

PAGE = (Path(__file__).parents[2] / "docs" / "objectives.md").read_text()
COMMON = {option.name for option in attrs.fields(PolicyOptions)}
every_descriptor = pytest.mark.parametrize("descriptor", DESCRIPTORS, ids=lambda d: d.name)


def row(heading: str, name: str) -> list[str]:
    """The cells of an objective's row in the first table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (line,) = re.findall(rf"^\| `{re.escape(name)}` \|.*$", section, re.M)
    return [cell.strip() for cell in line.strip("|").split("|")]


def read(text: str) -> Any:
    """A number or truth value as YAML writes it, or a word."""
    return text if text.isalpha() and text not in ("true", "false") else json.loads(text)


@every_descriptor
def test_every_objective_is_described(descriptor: ObjectiveDescriptor) -> None:
    assert len(row("At a glance", descriptor.name)) == 5


@every_descriptor
def test_the_options_of_its_own_are_named(descriptor: ObjectiveDescriptor) -> None:
    own = {option.name for option in attrs.fields(descriptor.options)} - COMMON
    assert set(re.findall(r"`(\w+)`", row("Options", descriptor.name)[1])) == own


@every_descriptor
def test_the_defaults_that_differ_are_named(descriptor: ObjectiveDescriptor) -> None:
    plain = {option.name: option.default for option in attrs.fields(PolicyOptions)}
    differ = {o.name: o.default for o in attrs.fields(descriptor.options) if o.default != plain.get(o.name, o.default)}
    named = dict(re.findall(r"`(\w+): ([^`]+)`", row("Options", descriptor.name)[2]))
    named.pop("scale", None)  # no common option: it differs from grpo's
    assert {name: read(text) for name, text in named.items()} == differ


def test_the_common_options_are_named() -> None:
    sentence = PAGE.split("All policy-gradient objectives: ")[1].split("`areal-plugins")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == COMMON
