"""A make of device that every machine has."""

from __future__ import annotations

from collections.abc import Mapping

from areal_core.contexts import Place


class MockPlatform:
    """Nothing."""

    def count(self) -> int:
        return 1

    def missing(self) -> str | None:
        return None

    def environment(self, place: Place) -> Mapping[str, str]:
        return {}


def make(_options: object, _context: None) -> MockPlatform:
    """The factory."""
    return MockPlatform()
