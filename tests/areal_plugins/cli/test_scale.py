"""`areal-plugins scale`, from outside of a run in processes of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys

import psutil
import pytest

from areal_core.errors import InputError
from areal_core.pipeline.control import FILE, Change, Control, opened, reached
from areal_plugins.cli import main, scale

SPEC = """
name: small
model: {type: tiny, hidden_size: 16, layers: 1, heads: 2, kv_heads: 1, alphabet: "0123456789+="}
platform: cpu
inference: {type: torch, max_concurrent: 16, sampling: {max_new_tokens: 3}}
training: {backend: torch, batch_size: 16, max_steps: 100000, learning_rate: 1.0e-3}
objective: {type: grpo, group_size: 4}
environments: [{name: sums, type: jsonl, path: sums.jsonl, test_fraction: 0.2, reward: exact}]
evaluation: {before: false, after: false}
"""


async def no_change(engines):
    raise InputError("engine-1", "needs the cuda devices 8, and there are 8", "ask for fewer engines")


def ask(folder, answer, work):
    """What `work` gets of a link to a run that answers with `answer`."""

    async def run():
        async with opened(Control(answer), folder), reached(folder) as link:
            return await work(link)

    return asyncio.run(run())


def test_a_run_can_be_asked_by_whoever_can_read_its_directory(tmp_path):
    async def grow(engines):
        return Change(1, tuple(f"engine-{index}" for index in range(1, engines)))

    assert ask(tmp_path, grow, lambda link: link.call("scale", 3)) == Change(1, ("engine-1", "engine-2"))
    assert not (tmp_path / FILE).exists()


def test_only_the_owner_may_read_the_key(tmp_path):
    async def mode():
        async with opened(Control(no_change), tmp_path):
            return stat.S_IMODE((tmp_path / FILE).stat().st_mode)

    assert asyncio.run(mode()) == 0o600


def test_whoever_has_another_key_is_refused(tmp_path):
    async def forged():
        async with opened(Control(no_change), tmp_path):
            said = json.loads((tmp_path / FILE).read_text())
            (tmp_path / FILE).write_text(json.dumps({**said, "key": "00" * 32}))
            async with reached(tmp_path):
                pass

    with pytest.raises(InputError, match="its run cannot be spoken to: "):
        asyncio.run(forged())


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("nowhere", "does not exist (give the directory of a run that is going on)"),
        ("README.md", "is no run directory (give the one that the run named"),
        ("r/checkpoints", "is no run directory (give the one that the run named"),
        ("r", "its run has ended (go on with it by run --resume"),
        ("r" * 300, "control.json: cannot be read: File name too long"),
    ],
)
def test_a_place_where_no_run_goes_on_is_told_for_what_it_is(tmp_path, capsys, path, problem):
    (tmp_path / "r" / "checkpoints").mkdir(parents=True)
    (tmp_path / "r" / "provenance.json").write_text("{}")
    (tmp_path / "README.md").touch()
    assert main(["scale", str(tmp_path / path), "--infer", "2"]) == 2
    assert f"{path}: {problem}".replace("r: control", "r/control") in capsys.readouterr().err


def test_one_engine_is_said_to_be_there_in_the_singular():
    assert scale._lines(Change(1), 1) == ["there is 1 engine already"]


def test_a_run_that_was_killed_is_an_error_too(tmp_path, capsys):
    (tmp_path / FILE).write_text(json.dumps({"address": "tcp:127.0.0.1:1", "key": "00", "pid": 1}))
    assert main(["scale", str(tmp_path), "--infer", "2"]) == 2
    assert "its run has ended without notice" in capsys.readouterr().err


DAMAGED = [
    "", "[]", '{"key": "00"}', '{"address": "tcp:127.0.0.1:1", "key": "no"}', '{"address": 7, "key": "00"}',
    '{"address": "tcp:127.0.0.1:99999", "key": "00"}', '{"address": "tcp:no.such.host.invalid:1", "key": "00"}',
    '{"address": "unix:/%s", "key": "00"}' % ("x" * 300),
]  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_control_file_is_named(tmp_path, capsys, text):
    (tmp_path / FILE).write_text(text)
    assert main(["scale", str(tmp_path), "--infer", "2"]) == 2
    assert FILE in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engines", "problem"),
    [("0", "cannot serve a run (one is the least)"), ("99999999999999999999999", "are too many (4096 are the most)")],
)
def test_numbers_that_no_run_can_have_are_refused(tmp_path, capsys, engines, problem):
    assert main(["scale", str(tmp_path), "--infer", engines]) == 2
    assert f"{engines} engines {problem}" in capsys.readouterr().err


def test_engines_join_and_leave_a_run_in_processes(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    tasks = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(task) + "\n" for task in tasks))
    command = [sys.executable, "-m", "areal_plugins", "run", "spec.yaml", "--run-dir", "r"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        shown = ""
        while "step 1/" not in shown:
            line = process.stdout.readline()
            assert line, shown
            shown += line
        assert main(["scale", "r", "--infer", "2"]) == 0
        assert capsys.readouterr().out == "engines: 1 -> 2\njoined: engine-1\n"
        assert main(["scale", "r", "--infer", "2"]) == 0
        assert capsys.readouterr().out == "there are 2 engines already\n"
        assert main(["scale", "r", "--infer", "1"]) == 0
        assert capsys.readouterr().out == "engines: 2 -> 1\nleft: engine-1\n"
        workers = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        shown += process.stdout.read()
    assert process.returncode == 130, shown
    assert not psutil.wait_procs(workers, timeout=30)[1]
    assert not (tmp_path / "r" / FILE).exists()
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "r" / "events.jsonl").read_text().splitlines()]
    assert [kind for kind in kinds if kind.startswith("engine-")] == ["engine-joined", "engine-left"]
    lags = [json.loads(line)["lag/max"] for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert max(lags) <= 4
