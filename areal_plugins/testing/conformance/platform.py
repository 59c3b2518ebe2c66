"""What a make of device must keep."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import ClassVar

import pytest

from areal_core.contexts import Place
from areal_core.manager import HEAVY
from areal_core.protocols import Platform
from areal_plugins.testing.conformance import elsewhere
from areal_plugins.testing.conformance.base import Conformance, Subject

PLACES = (Place(), Place(devices=(0,)), Place(rank=1, size=2, devices=(2, 3), threads=4))


class PlatformConformance(Conformance):
    """Rules for makes of device, whether there is one here or not."""

    kind: ClassVar[str] = "platform"

    @pytest.fixture
    def platform(self, subject: Subject) -> Platform:
        """The platform."""
        made: Platform = subject.build(None)
        return made

    def test_a_count_is_a_number_of_devices(self, platform: Platform) -> None:
        """`count` is a whole number, at least 0, and never an error: no driver means no devices."""
        count = platform.count()
        assert type(count) is int, f"count() is {count!r}"
        assert count >= 0, f"count() is {count}"

    def test_what_is_missing_is_one_line(self, platform: Platform) -> None:
        """`missing` says in one line what this machine lacks, or None."""
        missing = platform.missing()
        if missing is None:
            return
        assert isinstance(missing, str), f"missing() is {missing!r}"
        assert missing.strip(), "missing() is an empty text, not None"
        assert "\n" not in missing, f"missing() has several lines: {missing!r}"

    def test_asking_imports_nothing_heavy(self, subject: Subject) -> None:
        """Every check of a spec asks what is here: that imports nothing heavy."""
        heavy = elsewhere.ask(subject, None, asked, HEAVY)
        assert not heavy, f"count() and missing() import {', '.join(heavy)}"

    def test_variables_are_texts(self, platform: Platform) -> None:
        """`environment` maps names of variables to texts, for any place."""
        for place in PLACES:
            variables = platform.environment(place)
            assert isinstance(variables, Mapping), f"it is a {type(variables).__name__}"
            odd = [f"{name!r}: {value!r}" for name, value in variables.items() if not _is_variable(name, value)]
            assert not odd, f"no variables of texts: {', '.join(odd)}"

    def test_variables_depend_on_the_place_alone(self, platform: Platform) -> None:
        """Asked again, the variables are the same, and this process's own are as they were."""
        before = dict(os.environ)
        first = [dict(platform.environment(place)) for place in PLACES]
        second = [dict(platform.environment(place)) for place in reversed(PLACES)][::-1]
        assert first == second, f"they are {first} and then {second}"
        assert dict(os.environ) == before, "it changes the variables of this process"

    def test_a_worker_sees_its_own_devices(self, subject: Subject, platform: Platform) -> None:
        """The declared variable limits a worker to the devices of its place, and to them alone."""
        name = subject.descriptor.capabilities.visible_devices
        if name is None:
            pytest.skip("it declares no variable that limits what a worker sees")
        for devices in ((0,), (2, 3), (7, 5)):
            seen = platform.environment(Place(devices=devices)).get(name)
            expected = ",".join(map(str, devices))
            assert seen == expected, f"for the devices {devices} {name} is {seen!r}, not {expected!r}"


def asked(platform: Platform, heavy: tuple[str, ...]) -> list[str]:
    """What was imported when the platform was asked; in another process."""
    import sys

    before = set(sys.modules)
    platform.count()
    platform.missing()
    return sorted(set(heavy) & (set(sys.modules) - before))


def _is_variable(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, str) and bool(name) and not set("=\0") & set(name)
