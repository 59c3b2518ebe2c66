from __future__ import annotations

import json
from random import Random

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from areal_core.errors import InputError
from areal_plugins.simulate.lengths import Lengths, measured, parse, tokens


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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("normal:1,2", "there is no such distribution"),
        ("fixed", "N is no number: ''"),
        ("fixed:1,2", "fixed takes 1 number, not 2"),
        ("uniform:1", "uniform takes 2 numbers, not 1"),
        ("lognormal:100", "lognormal takes 2 or 3 numbers, not 1"),
        ("lognormal:1,2,3,4", "lognormal takes 2 or 3 numbers, not 4"),
        ("uniform:1,x", "HIGH is no number: 'x'"),
        ("uniform:3,1", "HIGH must not be below LOW"),
        ("fixed:-1", "N must not be negative"),
        ("uniform:-1,4", "LOW must not be negative"),
        ("lognormal:100,-1", "SIGMA must not be negative"),
        ("lognormal:100,1,-5", "MAX must not be negative"),
        ("lognormal:100,nan", "SIGMA must be finite"),
        ("uniform:1,inf", "HIGH must be finite"),
        ("lognormal:1e308,9", "MEAN must be at most 1e+12"),
        ("lognormal:0,1", "MEAN must be at least 1e-09"),
        ("log-uniform:1e-320,5", "LOW must be at least 1e-09"),
    ],
)
def test_a_number_that_cannot_be_is_named(text, why):
    with pytest.raises(InputError) as refused:
        parse(text, "--rewards")
    assert f"--rewards: cannot read {text!r}: {why}" in str(refused.value)


@pytest.mark.parametrize(
    "text",
    ["fixed:0", "fixed:0.4", "uniform:0,0", "uniform:0,9", "log-uniform:0.5,9", "lognormal:0.9,1", "lognormal:9,1,0"],
)
def test_an_answer_has_a_token(text):
    with pytest.raises(InputError, match=r"an answer has at least one token"):
        parse(text, "--lengths", "an answer")


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 100)


@given(st.sampled_from(["fixed", "uniform", "log-uniform", "lognormal"]), st.lists(numbers, min_size=1, max_size=3))
def test_what_is_read_can_be_drawn_and_has_tokens(kind, given_numbers):
    try:
        found = parse(f"{kind}:{','.join(map(repr, given_numbers))}", "--lengths", "an answer")
    except InputError:
        return
    for point in (0.0, 0.5, 0.999999):
        assert 1 <= tokens(found.at(point), 1000) <= 1000


def test_tokens_are_whole():
    assert [tokens(number, 4) for number in (0.2, 1.5, 2.6, 9.0)] == [1, 2, 3, 4]


def write(run, stages, file="steps-0000001-0000100.jsonl"):
    """A run directory with the groups of each stage, one a step."""
    (run / "trajectories").mkdir()
    steps = [(stage, group) for stage, groups in stages.items() for group in groups]
    with (run / "trajectories" / file).open("w") as trajectories, (run / "timings.jsonl").open("w") as timings:
        for step, (stage, group) in enumerate(steps, 1):
            line = {"step": step, "trajectories": [{"length": length} for length in group]}
            trajectories.write(json.dumps(line) + "\n")
            timings.write(json.dumps({"step": step, "stage": stage}) + "\n")
    return run


def test_lengths_of_a_run_are_those_it_was_trained_on(tmp_path):
    found = measured(write(tmp_path, {"main": [(5, 1, 3)]}))
    assert found == Lengths("measured", quantiles=(1.0, 3.0, 5.0), groups=((5.0, 1.0, 3.0),))
    assert found.at(0.25) == 2.0


def test_a_directory_without_a_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="no trajectories"):
        measured(tmp_path)


def drawn_groups(lengths, count, size=16):
    point = Random(7).random
    return np.log([lengths.group(size, point) for _ in range(count)])


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_the_stated_share_of_the_variance_of_log_lengths_lies_between_groups(share):
    logs = drawn_groups(evolve(parse("lognormal:100,0.8", "--lengths"), alike=share), 4000)
    within = logs.var(axis=1, ddof=1).mean()
    between = logs.mean(axis=1).var(ddof=1) - within / 16
    assert between / (between + within) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("form", ["lognormal:100,0.8,300", "log-uniform:10,1000", "uniform:10,1000"])
def test_answers_that_are_alike_are_as_long_as_others(form):
    lengths = parse(form, "--lengths")
    drawn = np.sort(drawn_groups(evolve(lengths, alike=0.5), 4000).ravel())
    for point in (0.1, 0.5, 0.9):
        assert drawn[int(point * len(drawn))] == pytest.approx(np.log(lengths.at(point)), abs=0.06)


def test_a_run_s_groups_are_drawn_whole(tmp_path):
    groups = [[base + member for member in range(4)] for base in (10, 20, 30)]
    found, point = measured(write(tmp_path, {"main": groups})), Random(7).random
    assert {tuple(sorted(found.group(4, point))) for _ in range(50)} == {
        tuple(base + member for member in range(4)) for base in (10, 20, 30)
    }
    assert {len({length // 10 for length in found.group(6, point)}) for _ in range(20)} == {1}


def test_a_run_that_is_being_written_is_measured_and_a_damaged_line_named(tmp_path):
    file = write(tmp_path, {"main": [(5, 7)]}) / "trajectories" / "steps-0000001-0000100.jsonl"
    whole = file.read_text()
    file.write_text(whole + '{"step": 2, "trajectories": [{"len')
    assert measured(tmp_path).groups == ((5.0, 7.0),)
    file.write_text(whole + '{"step": 2, "trajectories": 3}\n')
    with pytest.raises(InputError, match=rf"{file.name}:2: is damaged: "):
        measured(tmp_path)


def test_a_run_with_its_default_trackers_is_measured(areal_run):
    run = areal_run({"trackers": ["jsonl"]}).ensure_done()
    assert list(run.folder.glob("trajectories/rollouts-*.jsonl"))
    (file,) = run.folder.glob("trajectories/steps-*")
    trained = [json.loads(line) for line in file.read_text().splitlines()]
    lengths = [trajectory["length"] for line in trained for trajectory in line["trajectories"]]
    assert sorted(measured(run.folder).quantiles) == sorted(lengths)


def test_of_a_run_with_several_stages_the_last_that_trained_is_measured(tmp_path):
    found = measured(write(tmp_path, {"sft": [(900,), (950,)], "rl": [(5, 7), (6, 8)]}))
    assert found.quantiles == (5.0, 6.0, 7.0, 8.0)
    assert set(found.groups) == {(5.0, 7.0), (6.0, 8.0)}


def test_stages_of_a_real_run_are_told_apart(areal_run):
    stages = [
        {"name": "short", "training": {"max_steps": 2}, "inference": {"sampling": {"max_new_tokens": 2}}},
        {"name": "long", "training": {"max_steps": 1}},
    ]
    run = areal_run({"stages": stages}).ensure_done()
    last = run.trajectories[-2:]
    assert len(measured(run.folder).groups) == 2
    assert sorted(measured(run.folder).quantiles) == sorted(t.trained_units for group in last for t in group)


def test_answers_of_a_run_in_groups_of_one_are_drawn_by_themselves(tmp_path):
    found = measured(write(tmp_path, {"main": [(length,) for length in range(1, 101)]}))
    assert len(set(found.group(8, Random(7).random))) > 4
