"""`areal-plugins convert`: a config of another framework as a spec."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator

from areal_core.errors import InputError
from areal_plugins.cli import dumped, in_utf8
from areal_plugins.cli.writing import write_whole
from areal_plugins.convert import FRAMEWORKS, Conversion, Entry, Facts, convert
from areal_plugins.convert.render import one_line

EXAMPLES = """\
examples:
  areal-plugins convert areal gsm8k_grpo.yaml -o spec.yaml
  areal-plugins convert trl grpo_config.yaml --processes 8 --tasks 103000 -o spec.yaml
  areal-plugins convert verl run_grpo.sh --json    # the overrides of a launch script

The spec says behind each value which key it comes from; what has no counterpart is a comment in it. What
became of each key is listed on standard error. Go on with: areal-plugins check spec.yaml
"""

_HEADINGS = (
    ("carried", "carried over"),
    ("default", "not in the file; their default is written down"),
    ("lost", "CANNOT be carried over"),
    ("unknown", "UNKNOWN keys"),
    ("needless", "need no counterpart"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`convert FRAMEWORK FILE [-o OUT] [--tasks N] [--processes N] [--json]`."""
    parser.epilog = EXAMPLES
    parser.add_argument("framework", choices=FRAMEWORKS, help="whose config it is")
    parser.add_argument("file", metavar="FILE", help="their YAML; for verl also a launch script with overrides")
    parser.add_argument("-o", "--output", metavar="OUT", help="write the spec there; standard output by default")
    parser.add_argument("--tasks", type=_count, metavar="N", help="tasks of the training set, to count steps by epochs")
    parser.add_argument("--processes", type=_count, default=1, metavar="N", help="processes of TRL's launcher; 1")
    parser.add_argument("--json", action="store_true", help="the spec and what became of each key, for programs")


def main(args: argparse.Namespace) -> int:
    """Write the spec, and list what became of each key."""
    conversion = convert(args.framework, args.file, Facts(args.tasks, args.processes))
    if args.output and os.path.realpath(args.output) == os.path.realpath(args.file):
        raise InputError(f"-o {args.output}", "is the config itself, which would be lost", "write the spec elsewhere")
    if args.output:
        write_whole(args.output, conversion.text)
    if args.json:
        print(dumped(conversion.as_data()))
        return 0
    if not args.output:
        in_utf8()
        print(conversion.text, end="")
    print(*_story(conversion), sep="\n", file=sys.stderr)
    return 0


def _count(text: str) -> int:
    if not text.isdecimal() or len(text) > 18 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def _story(conversion: Conversion) -> Iterator[str]:
    for fate, heading in _HEADINGS:
        entries = [entry for entry in conversion.entries if entry.fate == fate]
        if entries:
            yield f"{heading}:"
            yield from (f"  {one_line(_told(entry))}" for entry in entries)


def _told(entry: Entry) -> str:
    place = f"{entry.line}: " if entry.line else ""
    keys = ", ".join(entry.keys)
    if entry.fate in ("carried", "default"):
        note = f" ({entry.note})" if entry.note else ""
        return f"{place}{keys} -> {entry.to}: {entry.value}{note}"
    return f"{place}{keys}: {entry.note}"
