from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from areal_core.errors import InputError
from areal_plugins.simulate.lengths import Lengths, measured, parse


@given(st.floats(0, 1, exclude_max=True))
def test_draws_lie_between_the_bounds(point):
    assert 10 <= parse("log-uniform:10,100", "--lengths").at(point) <= 100
    assert 10 <= parse("uniform:10,100", "--lengths").at(point) <= 100
    assert parse("lognormal:50,1,60", "--lengths").at(point) <= 60


def test_a_lognormal_has_the_mean_it_is_given():
    drawn = parse("lognormal:100,0.8", "--lengths")
    assert sum(drawn.at((i + 0.5) / 20_000) for i in range(20_000)) / 20_000 == pytest.approx(100, rel=0.01)


@pytest.mark.parametrize(
    "text", ["", "fixed", "fixed:x", "normal:1,2", "uniform:3,1", "log-uniform:0,4", "lognormal:1", "fixed:nan"]
)
def test_what_is_no_distribution_is_refused_with_the_forms_there_are(text):
    with pytest.raises(InputError, match=r"--lengths.*lognormal:MEAN,SIGMA"):
        parse(text, "--lengths")


def test_lengths_of_a_run_are_those_it_was_trained_on(tmp_path):
    (tmp_path / "trajectories").mkdir()
    line = {"step": 1, "trajectories": [{"length": length} for length in (5, 1, 3)]}
    (tmp_path / "trajectories" / "steps-1.jsonl").write_text(json.dumps(line) + "\n")
    found = measured(tmp_path)
    assert found == Lengths("measured", quantiles=(1.0, 3.0, 5.0))
    assert found.at(0.25) == 2.0


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no trajectories"):
        measured(tmp_path)
