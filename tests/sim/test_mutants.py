"""Deliberate bugs of the controller: the simulation finds them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import areal_core
from areal_plugins.testing.sim.mutants import MUTANTS, mutated

QUICK = ("admission off by one", "a group that fails is not counted as dropped", "a resume draws the same tasks again")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutants_piece_of_the_kernel_is_still_there(mutant):
    source = Path(areal_core.__file__).parent / "pipeline" / f"{mutant.module}.py"
    assert mutated(mutant, source.read_text()) != source.read_text()


def test_there_are_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 12


@pytest.mark.parametrize("name", QUICK)
def test_a_mutant_is_found(name):
    command = [sys.executable, "-m", "areal_plugins.testing.sim", "--mutant", name, "--seeds", "40"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "found at seed" in found.stdout
