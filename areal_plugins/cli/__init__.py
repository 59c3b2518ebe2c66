"""The command line: one module a subcommand, imported when it is called.

Exit codes: 0 done, 1 the run failed (or a fault of ours, with its traceback), 2 bad input,
130 interrupted.
"""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from math import isfinite, isnan
from typing import Any

from areal_core.errors import ArealError, SpecError

COMMANDS = {
    "run": "compose an experiment and run it",
    "check": "find everything that is wrong with a spec, without a device",
    "explain": "show the resolved spec, where each value is from, and what was chosen why",
    "schema": "print the JSON Schema of specs, which knows the installed plugins",
    "plugins": "show what is installed, and its state",
    "convert": "write a spec from a config of AReaL, TRL or verl",
    "migrate": "rewrite a spec of an older apiVersion",
    "simulate": "run a spec on a virtual clock with cost models of hardware that is not here",
    "eval": "score a checkpoint on a spec's environments",
    "scale": "let engines join or leave a running experiment",
}

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (`sys.argv` by default) and return its exit code."""
    argv = sys.argv[1:] if argv is None else argv
    command = next((word for word in argv if not word.startswith("-")), "")
    parser = _parser(command, [command] if command in COMMANDS and argv[0] == command else list(COMMANDS))
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    _escape_what_cannot_be_shown()
    try:
        code: int = args.module.main(args)
        if sys.stdout is not None:  # closed by whoever started us
            sys.stdout.flush()
    except ArealError as error:
        print(_message(error), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output is gone (`| head`)
        _silence()
        return 0
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        _silence()
        print(f"error: output: {error.strerror}", file=sys.stderr)
        return 1
    return code


def add_overrides(parser: argparse.ArgumentParser) -> None:
    """`--set`, for the commands that read a spec."""
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="override one value, read as YAML: --set training.max_steps=5 (may be repeated)",
    )


def dumped(data: Any) -> str:
    """Machine-readable output: JSON in whatever standard output can show."""
    import json  # the text needs none

    data = _finite(data)
    text = json.dumps(data, indent=2, ensure_ascii=False)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(data, indent=2)
    return text


def in_utf8() -> None:
    """Standard output as specs are read, whatever the terminal."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")


def _escape_what_cannot_be_shown() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _silence() -> None:
    """Nothing more is written, by Python at its end neither."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _finite(data: Any) -> Any:
    """JSON has no infinities: they are texts, as YAML writes them; NaN is null."""
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not isfinite(data):
        return None if isnan(data) else ".inf" if data > 0 else "-.inf"
    return data


def _parser(command: str, shown: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of `command`, among those `shown` in the help: each costs a search for translations."""
    parser = argparse.ArgumentParser(
        prog="areal-plugins",
        description="Asynchronous reinforcement learning of language models and classic policies.",
        epilog="Help on one command: areal-plugins COMMAND --help",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in shown:
        summary = COMMANDS[name]
        subparser = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == command:
            module: Any = import_module(f"areal_plugins.cli.{name}")
            subparser.set_defaults(module=module)
            module.add_arguments(subparser)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        from areal_core import installed

        print(f"areal-plugins {installed.version('areal-plugins')}")
        parser.exit()


def _message(error: ArealError) -> str:
    if not isinstance(error, SpecError):
        return f"error: {error}"
    from areal_core.spec.findings import count_line, render

    return "\n".join([*map(render, error.findings), count_line(error.findings)])
