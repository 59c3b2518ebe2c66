"""What importing the selected components shows."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from areal_core import descriptors as d
from areal_core.errors import Severity
from areal_core.spec.deep import import_findings


@pytest.fixture
def found(check, complete, extended):
    """The deep findings of a spec whose reward has this factory."""

    def of(factory: str):
        reward = d.RewardDescriptor(name="mine", summary="x", factory=factory)
        return import_findings(check(complete.replace("gsm8k", "gsm8k, reward: mine"), manager=extended(reward)))

    return of


def test_components_that_import_are_fine(found):
    assert found("areal_spec_fakes:make") == []


def test_a_missing_library_is_unavailable_and_named(found):
    (finding,) = found("areal_no_such_library.reward:make")
    assert (finding.code, finding.severity) == ("import-failed", Severity.UNAVAILABLE)
    assert "areal_no_such_library" in finding.message
    assert (finding.location.line, finding.location.column) == (4, 27)


def test_a_factory_that_is_not_there_is_the_components_error(found, monkeypatch):
    (finding,) = found("areal_spec_fakes:nothing")
    assert (finding.code, finding.severity) == ("import-failed", Severity.ERROR)
    module = ModuleType("areal_spec_constant")
    module.make = 5
    monkeypatch.setitem(sys.modules, "areal_spec_constant", module)
    assert [f.severity for f in found("areal_spec_constant:make")] == [Severity.ERROR]
