"""The rules for every kind: components that keep them, and for each rule one that does not."""

import pytest

from areal_core.descriptors import Component
from areal_plugins.testing import mocks
from areal_plugins.testing.conformance import Conformance

MOCKS = [value for value in vars(mocks).values() if isinstance(value, Component)]


class TestMocks(Conformance):
    @pytest.fixture(params=MOCKS, ids=lambda descriptor: descriptor.kind)
    def component(self, request):
        return request.param
