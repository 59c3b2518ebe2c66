"""Descriptors: what they default to, and options that are a class or the name of one."""

from __future__ import annotations

import attrs
import pytest

from areal_core.descriptors import (
    KINDS,
    EngineCapabilities,
    EngineDescriptor,
    NoOptions,
    ObjectiveDescriptor,
    RewardDescriptor,
)
from areal_core.errors import PluginError


def reward(**more):
    return RewardDescriptor(name="mine", summary="Judges.", factory="mine:make", **more)


def test_options_are_none_unless_said():
    assert reward().options is NoOptions


def test_options_may_be_the_class_itself():
    assert reward(options=EngineCapabilities).options is EngineCapabilities


def test_options_that_are_named_are_imported_when_asked_for():
    assert reward(options="areal_core.spec.model:LoraSpec").options.__name__ == "LoraSpec"


@pytest.mark.parametrize("name", ["no_such_module:Options", "areal_core.errors:Gone", "areal_core"])
def test_options_that_cannot_be_imported_name_the_component(name):
    with pytest.raises(PluginError, match="plugin reward/mine: its options") as caught:
        _ = reward(options=name).options
    assert name in str(caught.value)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_each_kind_has_capabilities_of_its_own(kind):
    able = kind(name="mine", summary="", factory="mine:make").capabilities
    assert type(able).__name__ == kind.__name__.replace("Descriptor", "Capabilities")


def test_capabilities_may_be_said():
    able = EngineCapabilities(lora=True)
    assert EngineDescriptor(name="mine", summary="", factory="mine:make", capabilities=able).capabilities is able


def test_descriptors_are_frozen():
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ObjectiveDescriptor(name="mine", summary="", factory="mine:make").name = "other"
