"""Makes of device that keep the rules, and for each rule one that breaks it alone."""

from __future__ import annotations

import itertools

import pytest

from areal_plugins import PlatformCapabilities, PlatformDescriptor
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import PlatformConformance
from areal_plugins.testing.conformance.running import run


class TestBuiltIn(PlatformConformance):
    @pytest.fixture(params=["platform/cpu", "platform/cuda", mocks.PLATFORM], ids=["cpu", "cuda", "mock"])
    def component(self, request):
        return request.param


class Plain:
    def __init__(self, options, context):
        pass

    def count(self):
        return 2

    def missing(self):
        return None

    def environment(self, place):
        return {"TOY_DEVICES": ",".join(map(str, place.devices))}


class Uncounted(Plain):
    def count(self):
        return None


class Wordy(Plain):
    def missing(self):
        return "no driver\nno tool\n"


class Heavy(Plain):
    def count(self):
        import transformers  # noqa: F401

        return 1


class Numbered(Plain):
    def environment(self, place):
        return {**super().environment(place), "THREADS": place.threads}


class Drifting(Plain):
    numbers = itertools.count()

    def environment(self, place):
        return {**super().environment(place), "PORT": str(next(self.numbers))}


class Spread(Plain):
    def environment(self, place):
        return {"TOY_DEVICES": "0,1,2,3,4,5,6,7"}


BROKEN = {
    "test_a_count_is_a_number_of_devices": Uncounted,
    "test_what_is_missing_is_one_line": Wordy,
    "test_asking_imports_nothing_heavy": Heavy,
    "test_variables_are_texts": Numbered,
    "test_variables_depend_on_the_place_alone": Drifting,
    "test_a_worker_sees_its_own_devices": Spread,
}
RULES = [name for name in vars(PlatformConformance) if name.startswith("test_")]


def failed(cls, only=tuple(RULES)):
    descriptor = PlatformDescriptor(
        name=cls.__name__.lower(),
        summary="an odd one",
        factory=f"{__name__}:{cls.__name__}",
        capabilities=PlatformCapabilities(visible_devices="TOY_DEVICES"),
    )
    return {r.test: r.cause for r in run(PlatformConformance, descriptor, only=only) if r.outcome == "failed"}


def test_a_plain_platform_keeps_every_rule():
    assert failed(Plain) == {}


def test_there_is_a_broken_platform_for_every_rule():
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule", BROKEN)
def test_a_platform_that_breaks_a_rule_fails_that_rule_alone(rule, asked):
    found = failed(BROKEN[rule], asked(rule, {rule}, RULES))
    assert list(found) == [rule], found
