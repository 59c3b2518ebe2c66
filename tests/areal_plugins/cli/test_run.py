"""`run` and `eval`, with mocks in this process."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from areal_core.pipeline.claim import claimed
from areal_plugins import cli
from areal_plugins.cli import run as run_command

SPEC = """
name: mocked
plugins: [areal_plugins.testing.mocks]
model: mock
platform: mock
executor: mock
inference: {type: mock, max_concurrent: 16}
training: {backend: mock, batch_size: 8, max_steps: 4, optimizer: mock}
weights: mock
objective: {type: grpo, group_size: 4}
environments: [{name: numbers, type: mock, reward: {type: mock, target: 4}}]
evaluation: {samples: 8}
trackers: []
"""

NO_TASKS = "environments=[{type: mock, reward: mock, test_size: 0}]"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """The working directory, with `spec.yaml` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    return tmp_path


def run(*argv):
    return cli.main(["run", "spec.yaml", *argv])


def test_a_run_ends_with_its_scores_and_where_everything_is(here, capsys):
    assert run("--run-dir", "r") == 0
    shown = capsys.readouterr().out
    assert "done: 4 steps in" in shown
    assert "held-out accuracy of numbers: 0.000 -> 1.000" in shown
    assert "run directory: r\n" in shown
    assert "checkpoint: r/checkpoints/step-4\n" in shown


def test_a_run_directory_holds_what_it_should(here):
    run("--run-dir", "r")
    names = {path.name for path in (here / "r").iterdir()}
    expected = ("spec.yaml", "provenance.json", "metrics.jsonl", "timings.jsonl", "evaluations.jsonl", "events.jsonl")
    assert names >= {*expected, "trace.json", "trajectories", "checkpoints", "logs"}


def test_the_resolved_spec_runs_again(here, capsys):
    run("--run-dir", "r", "--set", "training.max_steps=2")
    assert cli.main(["run", "r/spec.yaml", "--run-dir", "again"]) == 0
    assert len((here / "again" / "metrics.jsonl").read_text().splitlines()) == 2


def test_provenance_names_sources_overrides_seed_and_plugins(here):
    run("--run-dir", "r", "--set", "seed=5")
    provenance = json.loads((here / "r" / "provenance.json").read_text())
    assert provenance["overrides"] == ["seed=5"]
    assert provenance["seed"] == 5
    assert provenance["sources"][0].endswith("spec.yaml")
    assert {"builtin", "mocks"} <= {plugin["name"] for plugin in provenance["plugins"]}


def test_runs_get_a_directory_of_their_own(here):
    run()
    run()
    folders = list((here / "runs").iterdir())
    assert len(folders) == 2
    assert all(folder.name.startswith("mocked-") for folder in folders)


def test_runs_that_begin_in_the_same_second_do_not_share_a_directory(here, monkeypatch):
    names = iter(["runs/same", "runs/same", "runs/other"])
    monkeypatch.setattr(run_command, "_folder", lambda args, name: here / next(names))
    run()
    run()
    assert {folder.name for folder in (here / "runs").iterdir()} == {"same", "other"}


@pytest.mark.parametrize("arguments", [["--run-dir", "r"], ["--resume", "r"], ["--resume", "r/checkpoints/step-4"]])
def test_a_run_that_is_going_on_is_left_alone(here, capsys, arguments):
    run("--run-dir", "r")
    if arguments[0] == "--run-dir":
        (here / "r" / "metrics.jsonl").unlink()
    capsys.readouterr()
    before = sorted((here / "r" / "checkpoints").iterdir())
    with claimed(here / "r"):
        assert run(*arguments, "--set", "training.max_steps=9") == 2
    assert "r: a run is going on in this directory" in capsys.readouterr().err
    assert sorted((here / "r" / "checkpoints").iterdir()) == before


def test_a_directory_that_never_held_a_run_is_not_touched_by_a_resume(here, capsys):
    (here / "other").mkdir()
    assert run("--resume", "other") == 2
    assert not list((here / "other").iterdir())


def test_a_name_that_is_too_long_is_bad_input(here, capsys):
    assert run("--run-dir", "r" * 300) == 2
    assert "cannot hold a run: File name too long" in capsys.readouterr().err


def test_a_place_that_cannot_hold_a_run_is_bad_input(here, capsys):
    (here / "file").write_text("")
    assert run("--run-dir", "file") == 2
    assert "file: cannot hold a run" in capsys.readouterr().err


def test_a_directory_that_holds_a_run_is_not_written_over(here, capsys):
    run("--run-dir", "r")
    assert run("--run-dir", "r") == 2
    assert "holds a run" in capsys.readouterr().err


def test_a_dry_run_shows_workers_and_stages_and_starts_nothing(here, capsys):
    assert run("--dry-run") == 0
    shown = capsys.readouterr().out
    assert "worker engine-0: engine on cpu" in shown
    assert "stage main: steps 1 to 4, grpo" in shown
    assert not (here / "runs").exists()


def test_a_dry_run_of_a_resume_says_where_it_would_go_on_and_changes_nothing(here, capsys):
    run("--run-dir", "r", "--set", "checkpoint.every=3")
    more = ("--resume", "r", "--dry-run", "--set", "training.max_steps=9")
    capsys.readouterr()
    before = files(here)
    assert run(*more) == 0
    assert "\ngoes on from checkpoints/step-4 (step 4 of 9)\n" in capsys.readouterr().out
    (here / "r/checkpoints/step-4/buffer.npz").write_bytes(b"PK")
    assert run(*more) == 0
    shown = capsys.readouterr().out
    assert "\npassed over: checkpoint " in shown
    assert "step-4/buffer.npz: is damaged: it is not what was written\ngoes on from checkpoints/step-3 (st" in shown
    shutil.rmtree(here / "r/checkpoints")
    (here / "r/checkpoints").mkdir()
    assert run(*more) == 0
    assert "\nbegins again from step 0: there is no checkpoint" in capsys.readouterr().out
    assert {path for path in before if "checkpoints/" not in str(path)} == files(here)


def files(folder):
    return {path for path in folder.rglob("*") if "__pycache__" not in str(path)}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((), "all 4 steps of the run are done; raise training.max_steps"),
        (("--set", "training.max_steps=9", "--set", "seed=7"), "is of another experiment: its seed is "),
    ],
)
def test_a_dry_run_refuses_what_the_resume_would(here, capsys, options, problem):
    run("--run-dir", "r")
    for dry in (["--dry-run"], []):
        capsys.readouterr()
        assert run("--resume", "r", *options, *dry) == 2
        assert problem in capsys.readouterr().err


def test_a_dry_run_of_a_run_that_is_going_on_refuses_too(here, capsys):
    run("--run-dir", "r")
    with claimed(here / "r"):
        assert run("--resume", "r", "--dry-run", "--set", "training.max_steps=9") == 2
    assert "a run is going on in this directory" in capsys.readouterr().err


def test_a_dry_run_names_the_weights_that_it_would_begin_with(here, capsys):
    run("--run-dir", "r")
    assert run("--warm-start", "r", "--dry-run") == 0
    assert "\nbegins with the weights of r/checkpoints/step-4\n" in capsys.readouterr().out


FAILING = ("--set", "supervision.max_restarts=0", "--set", "training.mock.faults=[{method: train, call: 3}]")


def test_a_run_that_fails_ends_with_1_its_cause_and_the_command_that_resumes(here, capsys):
    assert run("--run-dir", "r", *FAILING) == 1
    shown = capsys.readouterr().err
    assert "error: the run failed: " in shown
    assert "trainer/mock: train step 2: RuntimeError: told to fail at call 3 of train" in shown
    assert (
        "there is no checkpoint yet; begin again with: areal-plugins run spec.yaml "
        "--set supervision.max_restarts=0 --set 'training.mock.faults=" in shown
    )
    assert f"--resume {here}/r" in shown


def test_the_command_that_resumes_holds_no_secret(here, capsys):
    (here / "judge.py").write_text("def judge(sample, token): return len(token)")
    reward = "{type: function, path: './judge.py:judge', arguments: {token: s3cret}}"
    keyed = f"environments=[{{name: numbers, type: mock, reward: {reward}}}]"
    assert run("--run-dir", "r", "--set", keyed, "--set", "training.mock.faults=[{method: train, call: 3}]") == 1
    shown = capsys.readouterr().err
    assert "begin again with: areal-plugins run spec.yaml --set 'environments=***' --set 'training" in shown
    assert "s3cret" not in shown + (here / "r" / "events.jsonl").read_text()


def test_a_failed_run_goes_on_from_where_it_was(here, capsys):
    assert run("--run-dir", "r", "--set", "checkpoint.every=2", *FAILING) == 1
    assert "\ngo on with: areal-plugins run spec.yaml" in capsys.readouterr().err
    assert run("--resume", "r") == 0
    assert len((here / "r" / "metrics.jsonl").read_text().splitlines()) == 4


def test_bad_data_ends_with_2(here, capsys):
    environment = "environments=[{type: mock, demonstrates: false, reward: mock}]"
    assert run("--set", "objective=sft", "--set", environment) == 2
    assert "task mock/train/0: has no demonstration" in capsys.readouterr().err


def test_a_bad_spec_ends_with_2_before_anything_is_started(here, capsys):
    assert run("--set", "training.max_stepss=2") == 2
    assert "did you mean `max_steps`" in capsys.readouterr().err
    assert not (here / "runs").exists()


def test_a_fault_of_ours_shows_its_traceback(here, capsys, monkeypatch):
    monkeypatch.setattr("areal_core.pipeline.train.batch_metrics", lambda batch: batch.nothing)
    assert run("--run-dir", "r") == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "AttributeError: 'Batch' object has no attribute 'nothing'" in shown


RESUMED = "(give RUN or RUN/checkpoints/step-N)"
MODEL = "(give a run directory, a checkpoints/step-N or a Hugging Face directory)"


@pytest.mark.parametrize(
    ("option", "path", "problem"),
    [
        ("--resume", "nowhere", f"does not exist {RESUMED}"),
        ("--resume", "r/checkpoints/step-999", f"does not exist {RESUMED}"),
        ("--resume", "r/checkpoints", f"is no run directory {RESUMED}"),
        ("--resume", "empty", f"is no run directory {RESUMED}"),
        ("--resume", "spec.yaml", f"is no run directory {RESUMED}"),
        ("--resume", "spec.yaml/x", f"cannot be read: Not a directory {RESUMED}"),
        ("--resume", "r" * 300, f"cannot be read: File name too long {RESUMED}"),
        ("--resume", "copy", "lies in no run directory (move it into the checkpoints/ of its run, or begin a new run"),
        ("--warm-start", "nowhere", f"does not exist {MODEL}"),
        ("--warm-start", "empty", f"is no model directory: it has no config.json {MODEL}"),
        ("--warm-start", "r" * 300, f"cannot be read: File name too long {MODEL}"),
        ("--warm-start", "young", f"its run has no checkpoint yet {MODEL}"),
    ],
)
def test_a_path_that_is_no_checkpoint_is_told_for_what_it_is(here, capsys, option, path, problem):
    run("--run-dir", "r")
    (here / "empty").mkdir()
    (here / "young" / "checkpoints").mkdir(parents=True)
    shutil.copytree(here / "r/checkpoints/step-4", here / "copy")
    assert run(option, path) == 2
    assert f"{path}: {problem}" in capsys.readouterr().err


def test_a_resume_may_name_a_checkpoint_from_beside_it(here, monkeypatch):
    run("--run-dir", "r", "--set", "checkpoint.every=3")
    monkeypatch.chdir(here / "r/checkpoints/step-4")
    assert cli.main(["run", str(here / "spec.yaml"), "--resume", "../step-3"]) == 0
    assert {path.name for path in (here / "r/checkpoints").iterdir()} >= {"step-4", "abandoned-step-4"}


def test_a_resume_may_name_a_checkpoint_that_was_set_aside(here):
    run("--run-dir", "r", "--set", "checkpoint.every=3")
    assert run("--resume", "r/checkpoints/step-3") == 0
    assert run("--resume", "r/checkpoints/abandoned-step-4", "--set", "training.max_steps=5") == 0


def test_resuming_stays_in_its_directory(here, capsys):
    run("--run-dir", "r")
    assert run("--resume", "r", "--run-dir", "elsewhere") == 2


def test_a_warm_start_begins_with_other_weights_from_its_first_step(here):
    model = here / "model"
    model.mkdir()
    (model / "config.json").write_text('{"steps": 0}')
    assert run("--run-dir", "second", "--warm-start", str(model)) == 0


def test_debug_mode_runs_everything_inline_and_repeats_itself(here, monkeypatch):
    monkeypatch.setenv("AREAL_DEBUG_MODE", "1")
    slow = "inference.mock={token_seconds: 100, longest: 50}"
    assert run("--run-dir", "a", "--set", slow) == run("--run-dir", "b", "--set", slow) == 0
    assert (here / "a" / "metrics.jsonl").read_bytes() == (here / "b" / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("command", "option"), [("run", "--resume RUN"), ("run", "--warm-start CKPT"), ("eval", "--checkpoint DIR")]
)
def test_the_help_says_that_a_run_directory_and_a_checkpoint_will_do(capsys, command, option):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    words = " ".join(capsys.readouterr().out.partition("\noptions:")[2].split())
    shown = words.partition(f"{option} ")[2].partition(" --")[0]
    assert "run directory" in shown
    assert "checkpoint" in shown


def start(here, *argv):
    command = [sys.executable, "-m", "areal_plugins", "run", "spec.yaml", "--run-dir", "r", *argv]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for(process, text):
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"no line has {text!r}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_with_a_checkpoint_and_130(here, number):
    with start(here, "--set", "training.max_steps=100000", "--set", "evaluation.before=false") as process:
        wait_for(process, "step 1/")
        process.send_signal(number)
        shown = process.stdout.read()
    assert process.returncode == 130
    assert "stopped: " in shown
    assert "go on with: areal-plugins run" in shown
    assert len(list((here / "r" / "checkpoints").iterdir())) == 1


def test_a_second_signal_ends_a_run_at_once(here):
    endless = ("--set", "training.max_steps=100000", "--set", "executor.mock.latency={save_state: 3600}")
    with start(here, *endless, "--set", "evaluation.before=false") as process:
        wait_for(process, "step 1/")
        process.send_signal(signal.SIGINT)
        wait_for(process, "once more ends at once")
        process.send_signal(signal.SIGINT)
        shown = process.stdout.read()
    assert process.returncode == 130
    assert "once more" not in shown
    assert "ended at once\nrun directory: r\nthere is no checkpoint yet; begin again with: areal-plugins run" in shown
    events = [json.loads(line)["kind"] for line in (here / "r" / "events.jsonl").read_text().splitlines()]
    assert events.count("stop") == 1


def test_a_run_that_is_stopped_before_its_first_step_says_how_to_begin_again(here, capsys):
    slow = ("--set", "executor.mock.latency={materialize: 3600}")
    with start(here, *slow) as process:
        wait_for(process, "starting workers")
        process.send_signal(signal.SIGINT)
        shown = process.stdout.read()
    assert process.returncode == 130
    command = shown.partition("nothing was trained yet; begin again with: areal-plugins ")[2]
    arguments = [word for word in shlex.split(command) if word not in slow]
    assert cli.main(arguments) == 0
    assert len((here / "r" / "metrics.jsonl").read_text().splitlines()) == 4


def test_a_checkpoint_scores_as_the_run_scored_it(here, capsys):
    run("--run-dir", "r")
    capsys.readouterr()
    assert cli.main(["eval", "spec.yaml", "--checkpoint", "r/checkpoints/step-4", "--json"]) == 0
    scored = json.loads(capsys.readouterr().out)["environments"]
    recorded = json.loads((here / "r" / "evaluations.jsonl").read_text().splitlines()[-1])["environments"]
    assert scored == recorded


def test_scores_are_a_line_an_environment(here, capsys):
    run("--run-dir", "r")
    capsys.readouterr()
    cli.main(["eval", "spec.yaml", "--checkpoint", "r/checkpoints/step-4", "--samples", "4"])
    shown = capsys.readouterr()
    assert shown.out.startswith("numbers  accuracy 1.0000 ± 0.0000")
    assert "(4 tasks)" in shown.out


def test_scoring_leaves_no_run_directory(here):
    run("--run-dir", "r")
    cli.main(["eval", "spec.yaml", "--checkpoint", "r/checkpoints/step-4"])
    assert {path.name for path in here.iterdir()} - {"__pycache__"} == {"r", "spec.yaml"}


def test_scoring_removes_what_a_killed_one_left_among_temporary_files(here, monkeypatch):
    run("--run-dir", "r")
    (here / "temporary" / "areal-evaluation-left").mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(here / "temporary"))
    cli.main(["eval", "spec.yaml", "--checkpoint", "r/checkpoints/step-4"])
    assert list((here / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--checkpoint", "nowhere"), "nowhere: does not exist (give a run directory"),
        (("--checkpoint", "model", "--samples", "0"), "--samples: 0 is not at least 1"),
        (("--checkpoint", "model", "--set", NO_TASKS), "no environment has held-out tasks"),
    ],
)
def test_what_cannot_be_scored_is_bad_input(here, capsys, arguments, problem):
    (here / "model").mkdir()
    (here / "model" / "config.json").write_text('{"steps": 0}')
    assert cli.main(["eval", "spec.yaml", *arguments]) == 2
    assert problem in capsys.readouterr().err


def test_a_reward_that_raises_fails_the_scoring(here, capsys):
    (here / "model").mkdir()
    (here / "model" / "config.json").write_text('{"steps": 0}')
    environment = "environments=[{type: mock, reward: {type: mock, faults: [{method: score, times: null}]}}]"
    arguments = ["--checkpoint", "model", "--samples", "16", "--set", environment]
    assert cli.main(["eval", "spec.yaml", *arguments]) == 1
    assert "reward/mock" in capsys.readouterr().err
