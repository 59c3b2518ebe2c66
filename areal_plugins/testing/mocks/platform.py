"""A make of device that every machine has."""

from __future__ import annotations

from collections.abc import Mapping

from areal_core.contexts import Place
from areal_plugins.testing.mocks.conduct import Conduct
from areal_plugins.testing.mocks.options import PlatformOptions


def make(options: PlatformOptions, _context: None) -> MockPlatform:
    """The factory."""
    return MockPlatform(options)


class MockPlatform:
    """Nothing, as much as there shall be."""

    def __init__(self, options: PlatformOptions) -> None:
        self._options, self._conduct = options, Conduct(options)

    def count(self) -> int:
        self._conduct.act_here("count")
        return self._options.devices

    def missing(self) -> str | None:
        self._conduct.act_here("missing")
        return None

    def environment(self, place: Place) -> Mapping[str, str]:
        self._conduct.act_here("environment")
        return {}
