"""The command line itself: dispatch, exit codes, and what it costs."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from areal_core.errors import Finding, InputError, Location, RunFailed, SpecError
from areal_plugins import cli


@pytest.fixture
def raising(monkeypatch):
    """`main` of the check command raises this."""

    def with_error(error: BaseException) -> int:
        def raise_it(args):
            raise error

        module = SimpleNamespace(add_arguments=lambda parser: None, main=raise_it)
        monkeypatch.setattr(cli, "import_module", lambda name: module)
        return cli.main(["check"])

    return with_error


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert all(f"\n    {command}" in shown for command in cli.COMMANDS)


@pytest.mark.parametrize("command", ["check", "explain", "schema", "plugins"])
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: areal-plugins {command}")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_that_is_listed_exists(command):
    assert importlib.util.find_spec(f"areal_plugins.cli.{command}") is not None


def test_without_a_command_help_goes_to_stderr_and_2_is_returned(capsys):
    assert cli.main([]) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["chek"], ["check"], ["check", "x.yaml", "--no-such-flag"], ["--no-such-flag"]])
def test_a_bad_command_line_ends_with_2(argv):
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    assert end.value.code == 2


def test_the_version_is_the_distributions(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.startswith("areal-plugins ")


def test_an_error_made_on_purpose_is_a_message_and_its_exit_code(raising, capsys):
    assert raising(InputError("data.jsonl:3", "no JSON", "fix the line")) == 2
    assert capsys.readouterr().err == "error: data.jsonl:3: no JSON (fix the line)\n"
    assert raising(RunFailed("a reward raised")) == 1


def test_findings_are_shown_with_their_lines(raising, capsys):
    place = Location("a.yaml", 1, 1, "tranning: {}", 8)
    assert raising(SpecError([Finding("unknown-key", "tranning", location=place, hint="did you mean?")])) == 2
    assert "  | ^^^^^^^^ did you mean?\n1 error" in capsys.readouterr().err


def test_an_interrupt_is_no_traceback(raising, capsys):
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_fault_of_ours_keeps_its_traceback(raising):
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_checking_a_spec_imports_nothing_heavy(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("model: tiny\nenvironments: [gsm8k]\nplatform: cpu\n")
    heavy = "{'torch', 'numpy', 'transformers', 'cattrs', 'msgspec'}"
    code = f"import sys; from areal_plugins.cli import main; main(['check', {str(spec)!r}])"
    assert run(f"{code}; print({heavy} & set(sys.modules))").splitlines()[-1] == "set()"


def test_listing_plugins_loads_neither_openssl_nor_json_nor_yaml(monkeypatch):
    monkeypatch.setenv("AREAL_PLUGINS_AUTOLOAD", "0")
    code = "import sys; from areal_plugins.cli import main; main(['plugins', 'list'])"
    assert run(f"{code}; print({{'_hashlib', 'json', 'ruamel.yaml'}} & set(sys.modules))").splitlines()[-1] == "set()"


def test_help_lists_every_command_whatever_follows(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help", "check"])
    shown = capsys.readouterr().out
    assert all(f"\n    {command}" in shown for command in cli.COMMANDS)


def built_options(*argv: str) -> list[str]:
    """The built-in areas whose options' classes a command line builds: most of a light command's time."""
    code = f"import sys; from areal_plugins.cli import main; main({list(argv)!r})"
    built = "[n.split('.')[2] for n in sorted(sys.modules) if n.startswith('areal_plugins.builtin') and 'options' in n]"
    return run(f"{code}; print('built:', *{built})").splitlines()[-1].split()[1:]


def test_listing_plugins_builds_no_options():
    assert built_options("plugins", "list") == []


def test_checking_a_spec_builds_the_options_of_what_it_selects(tmp_path):
    spec = tmp_path / "spec.yaml"
    spec.write_text("model: tiny\nobjective: sft\nenvironments: [gsm8k]\n")
    assert built_options("check", str(spec)) == ["environments"]


def test_python_m_areal_plugins_is_the_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "areal_plugins", "check", str(tmp_path / "gone.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "error[no-such-file]" in done.stdout


@pytest.fixture
def started(tmp_path):
    """The command in a process of its own, with `environ` on top."""
    (tmp_path / "spec.yaml").write_text('name: "é"\nbadé: 1\n', encoding="utf-8")

    def run(shell: str, **environ: str) -> subprocess.CompletedProcess:
        line = f"{shlex.quote(sys.executable)} -m areal_plugins {shell}"
        return subprocess.run(
            line, shell=True, cwd=tmp_path, env={**os.environ, **environ}, capture_output=True, check=False
        )

    return run


def test_a_terminal_that_shows_only_ascii_gets_escapes(started):
    done = started("check spec.yaml", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (2, b"")
    assert b"bad\\xe9" in done.stdout


def test_json_stays_json_where_only_ascii_is_shown(started):
    done = started("check spec.yaml --format json", PYTHONIOENCODING="ascii")
    assert any("badé" in finding["message"] for finding in json.loads(done.stdout)["specs"][0]["findings"])


def test_a_spec_is_printed_in_utf_8_whatever_the_terminal(started):
    assert started("migrate spec.yaml", PYTHONIOENCODING="ascii").stdout.decode() == 'name: "é"\nbadé: 1\n'


def test_a_closed_standard_output_is_no_traceback(started):
    done = started("plugins list >&-")
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_named(started):
    done = started("plugins list >/dev/full")
    assert (done.returncode, done.stderr) == (1, b"error: output: No space left on device\n")
