"""Requirements: the short way for plain numbers says what the library says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from areal_core import requirements
from areal_core.requirements import pip_line, unmet, unmet_requirements

RELEASES = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda numbers: ".".join(map(str, numbers)))


@given(RELEASES, RELEASES)
def test_plain_numbers_compare_as_the_library_does(installed, floor):
    enough = SpecifierSet(f">={floor}").contains(installed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requirements.installed, "version", lambda name: installed)
        assert (unmet.__wrapped__(f"thing>={floor}") is None) == enough


@pytest.mark.parametrize(
    ("installed", "requirement", "met"),
    [
        ("2.13.0+cpu", "torch>=2.6", True),
        ("2.0.0rc1", "thing>=2.0", False),
        ("2.1.0rc1", "thing>=2.0", True),
        ("1.5", "thing>=1,<2", True),
        ("2.5", "thing>=1,<2", False),
        ("1.0", "thing", True),
        ("1.0", "thing>=2; python_version < '3'", True),
    ],
)
def test_other_forms_are_left_to_the_library(monkeypatch, installed, requirement, met):
    monkeypatch.setattr(requirements.installed, "version", lambda name: installed)
    assert (unmet.__wrapped__(requirement) is None) == met


def test_what_is_not_installed_is_said_by_name():
    assert unmet("no-such-dist>=2") == "no-such-dist is not installed"
    assert unmet_requirements(["pluggy>=1", "no-such-dist"]) == ("no-such-dist is not installed",)


def test_a_version_that_is_too_old_is_named():
    assert "is installed, >=999 is needed" in unmet("pluggy>=999")


def test_the_pip_line_quotes_what_a_shell_would_read():
    assert pip_line(["a>=1", "b"]) == "pip install 'a>=1' b"
