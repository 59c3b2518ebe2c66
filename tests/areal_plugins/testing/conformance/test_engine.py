"""The built-in engine keeps the rules for engines, and each rule catches an engine that breaks it."""

import pytest

from areal_plugins.testing.conformance import EngineConformance


class TestTorch(EngineConformance):
    @pytest.fixture
    def component(self):
        return "engine/torch"
