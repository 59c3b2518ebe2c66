"""Whole simulated runs."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from attrs import evolve

from areal_core.errors import InputError
from areal_plugins.cli import main
from areal_plugins.simulate.hardware import PROFILES
from areal_plugins.simulate.lengths import Lengths
from areal_plugins.simulate.outcome import simulate, window
from areal_plugins.simulate.plan import Job
from areal_plugins.simulate.shape import KNOWN
from areal_plugins.simulate.split import balanced, best, search, splits

JOB = Job(
    hardware=PROFILES["h800"],
    shape=KNOWN["qwen2.5-7b"],
    answers=Lengths("log-uniform", 800, 8000),
    trainers=1,
    engines=7,
    max_concurrent=10,
    batch_size=128,
    longest=8000,
)

SPEC = """\
name: planned
model: {type: hf, path: Qwen/Qwen2.5-7B-Instruct}
platform: cpu
resources: {train: {num_gpus: 1}, infer: {num_gpus: 3, parallel: dp}}
inference: {max_concurrent: 8, sampling: {max_new_tokens: 500}}
training: {batch_size: 32}
objective: {type: grpo, group_size: 8}
environments: [{type: jsonl, path: data.jsonl, reward: exact}]
evaluation: {before: false, after: false}
"""


@pytest.fixture(scope="module")
def outcomes():
    return {bound: simulate(evolve(JOB, max_staleness=bound), steps=3) for bound in (0, 4)}


def test_generation_that_runs_ahead_doubles_the_throughput(outcomes):
    assert outcomes[4].tokens > 1.8 * outcomes[0].tokens


def test_utilization_is_what_the_split_allows_with_staleness_and_far_below_without(outcomes):
    assert outcomes[4].utilization > 0.9 * outcomes[4].best
    assert outcomes[0].utilization < 0.5


def test_no_token_is_older_than_the_bound(outcomes):
    assert set(outcomes[0].lags) == {0}
    assert max(outcomes[4].lags) <= 4
    assert sum(outcomes[4].lags.values()) == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_outcome(outcomes):
    assert simulate(evolve(JOB, max_staleness=0), steps=3) == outcomes[0]


def test_late_rewards_hold_the_step_up():
    on_policy = evolve(JOB, max_staleness=0, batch_size=32)
    late = evolve(on_policy, rewards=Lengths("fixed", 500))
    assert simulate(late, 2).step_seconds == pytest.approx(simulate(on_policy, 2).step_seconds + 500, rel=0.02)


def test_the_balanced_split_is_where_neither_pool_waits_long():
    assert balanced(JOB).engines in (6, 7)
    assert {way.devices for way in splits(JOB)} == {8}


SWINGING = Job(
    hardware=PROFILES["910b"],
    shape=KNOWN["qwen3-0.6b"],
    answers=Lengths("log-uniform", 102.4, 1024),
    trainers=4,
    engines=4,
    max_concurrent=256,
    batch_size=256,
    longest=1024,
    forwards=1,
    recompute=True,
)
"""Batches are generated in waves of five: one step in five waits for most of a wave."""


@pytest.fixture(scope="module")
def long():
    """Tokens a second over six swings, by engines."""
    return {engines: simulate(SWINGING.split(engines), 30).tokens for engines in (3, 4, 5, 6)}


def test_the_pace_of_a_window_is_the_pace_of_many_steps(long):
    for engines, tokens in long.items():
        assert simulate(SWINGING.split(engines), window(SWINGING, 2)).tokens == pytest.approx(tokens, rel=0.02)


def test_the_best_split_of_a_search_is_the_best_in_the_long_run(long):
    found = best(search(SWINGING, window(SWINGING)))
    assert found.job.engines == max(long, key=long.__getitem__)
    assert found.utilization <= found.best


@pytest.mark.parametrize(("bound", "asked", "steps"), [(0, 1, 2), (0, 10, 10), (2, 10, 12), (4, 4, 10), (8, 10, 18)])
def test_a_window_has_whole_swings_two_at_least_and_the_steps_that_are_asked_for(bound, asked, steps):
    assert window(evolve(JOB, max_staleness=bound), asked) == steps


def test_idle_time_is_that_of_the_steps_that_are_measured():
    on_policy = evolve(JOB, max_staleness=0)
    whole, *parts = (simulate(on_policy, steps, warm=warm) for steps, warm in ((5, 6), (2, 6), (3, 8)))
    seconds = [outcome.steps * outcome.step_seconds for outcome in parts]
    idle = [outcome.waits["engines have nothing to do"] for outcome in parts]
    mean = sum(share * each for share, each in zip(idle, seconds, strict=True)) / sum(seconds)
    assert whole.waits["engines have nothing to do"] == pytest.approx(mean)


@pytest.mark.parametrize("answers", [Lengths("fixed", 1.5), Lengths("fixed", 2), Lengths("log-uniform", 1, 16)])
def test_answers_of_few_tokens_are_counted_as_they_are(answers):
    short = simulate(evolve(JOB, answers=answers, batch_size=64, max_staleness=1), steps=4)
    assert short.utilization <= 1.02 * short.best


def test_a_killed_simulation_s_files_go_with_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "areal-simulation-left").mkdir()
    simulate(evolve(JOB, max_staleness=0, batch_size=8), steps=1)
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_does_not_fit_says_how_to_make_it():
    with pytest.raises(InputError, match=r"do not fit in 1 x NVIDIA H800.*parallel"):
        simulate(evolve(JOB, shape=KNOWN["qwen2.5-32b"], longest=200_000))


def test_too_few_devices_for_a_large_engine_say_how_many_are_needed():
    large = evolve(JOB, engines=1, engine_devices=3, trainers=-1)
    with pytest.raises(
        InputError, match=r"2 devices cannot hold an engine of 3.*give 4 or more, or a smaller resources"
    ):
        balanced(large)


@pytest.fixture
def spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "data.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    return "spec.yaml"


def test_the_command_prints_throughput_lags_waits_and_the_best_split(spec, capsys):
    assert (
        main(
            [
                "simulate",
                spec,
                "--hardware",
                "h200",
                "--steps",
                "2",
                "--set",
                "resources.infer.num_gpus=1",
                "--plot",
                "plan.svg",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out
    for part in (
        "2 x NVIDIA H200 SXM, 7.62 B parameters",
        "1 engine of 1 device generates, 1 device trains",
        "at most 500 tokens each\n",
        "utilization",
        "best split",
        "tokens/s",
        "utilization",
        "lag of",
        "waits for a batch",
    ):
        assert part in text
    assert "<svg" in Path("plan.svg").read_text(encoding="utf-8")


def test_the_text_says_how_many_answers_are_cut(spec, capsys):
    arguments = ["--hardware", "h200", "--no-search", "--lengths", "uniform:1,999"]
    assert main(["simulate", spec, *arguments]) == 0
    shown = capsys.readouterr().out
    assert "at most 500 tokens each (50.0% are cut there)" in shown
    assert "3 engines of 1 device generate, 1 device trains" in shown


def test_small_models_have_their_size(spec, capsys):
    tiny = ["--set", "model={type: tiny}", "--hardware", "cpu", "--no-search"]
    assert main(["simulate", spec, *tiny]) == 0
    assert re.search(
        r"4 x processor core, (0\.[1-9]|[1-9]).* M parameters|[1-9][0-9,]+ parameters", capsys.readouterr().out
    )


def test_the_figures_are_shown_where_the_plot_cannot_be_written(spec, capsys):
    arguments = ["--hardware", "h200", "--no-search", "--plot", "nowhere/plan.svg"]
    assert main(["simulate", spec, *arguments]) == 2
    shown = capsys.readouterr()
    assert "tokens/s trained on" in shown.out
    assert "nowhere/plan.svg: cannot be written" in shown.err


def test_devices_are_split_whatever_the_spec_says(spec, capsys):
    assert (
        main(["simulate", spec, "--hardware", "910b", "--devices", "6", "--steps", "2", "--no-search", "--json"]) == 0
    )
    data = json.loads(capsys.readouterr().out)
    assert data["as_written"] is None
    assert data["best"]["engines"] + data["best"]["trainers"] == 6
    assert data["best"]["tokens"] > 0


def test_the_best_split_has_the_figures_that_the_table_has(spec, capsys):
    assert main(["simulate", spec, "--hardware", "h800", "--steps", "2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["best"] in data["splits"]
    assert data["as_written"] in data["splits"]
    assert data["best"]["tokens"] == max(split["tokens"] for split in data["splits"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hardware", "h9000"], "--hardware: 'h9000' is not known"),
        (["--model", "nothing"], "--model: no sizes are shipped"),
        (["--lengths", "short"], "--lengths: cannot read 'short'"),
        (["--lengths", "fixed:0"], "--lengths: cannot read 'fixed:0': an answer has at least one token"),
        (["--prompts", "uniform:0,0"], "--prompts: cannot read 'uniform:0,0': a prompt has at least one token"),
        (["--rewards", "lognormal:9,-1"], "--rewards: cannot read 'lognormal:9,-1': SIGMA must not be negative"),
        (["--lengths-from", "nowhere"], "nowhere: holds no trajectories"),
        (["--lengths-from", "nowhere", "--alike", "0.2"], "--alike: the run's groups are drawn whole"),
        (["--alike", "2"], "--alike: 2 is no share"),
        (["--devices", "1"], "--devices: 1 device cannot hold an engine of 1 and a trainer (give 2 or more)"),
        (["--devices", "0"], "--devices: 0 devices cannot hold an engine of 1 and a trainer (give 2 or more)"),
        (["--steps", "0"], "--steps: 0 is too few"),
        (["--plot", "plan.png"], "--plot: 'plan.png' does not end in .svg"),
        (["--set", "model.path=org/unknown"], "--model with one of"),
        (["--set", "placement=colocated"], "placement"),
        (["--set", "objective={type: sft}"], "objective: sft generates nothing"),
    ],
)
def test_what_cannot_be_simulated_is_refused(spec, capsys, arguments, said):
    assert main(["simulate", spec, *arguments]) == 2
    assert said in capsys.readouterr().err
