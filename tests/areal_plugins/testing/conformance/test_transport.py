"""The built-in transports keep the rules for transports, and each rule catches one that breaks it."""

import pytest

from areal_plugins.testing.conformance import TransportConformance


class TestBuiltin(TransportConformance):
    @pytest.fixture(params=["memory", "shm", "disk"])
    def component(self, request):
        return f"transport/{request.param}"
