"""`areal-plugins migrate`: a spec of an older `apiVersion` as one of the current, comments kept."""

from __future__ import annotations

import argparse
import sys

from areal_plugins.cli import in_utf8
from areal_plugins.cli.writing import write_whole
from areal_plugins.migrate import MIGRATIONS, Migrated, migrate

EXAMPLES = """\
examples:
  areal-plugins migrate spec.yaml             # the new spec to standard output, what changed to standard error
  areal-plugins migrate spec.yaml --write     # in place
  areal-plugins migrate spec.yaml --check     # 2 if there is something to rewrite, 0 otherwise

A file that the spec extends is a spec of its own: migrate it, too.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`migrate SPEC [--write | -o FILE | --check]`."""
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help="YAML file")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="rewrite the file in place")
    how.add_argument("-o", "--output", metavar="FILE", help="write the new spec there; standard output by default")
    how.add_argument("--check", action="store_true", help="write nothing; 2 when the spec is not current")


def main(args: argparse.Namespace) -> int:
    """Write the spec, and say on stderr what changed."""
    migrated = migrate(args.spec, MIGRATIONS)
    print(*_story(args.spec, migrated), sep="\n", file=sys.stderr)
    if args.check:
        return 2 if migrated.is_new else 0
    if args.write and migrated.is_new:
        write_whole(args.spec, migrated.text)
    elif args.output:
        write_whole(args.output, migrated.text)
    elif not args.write:
        in_utf8()
        print(migrated.text, end="")
    return 0


def _story(spec: str, migrated: Migrated) -> list[str]:
    if not migrated.is_new:
        return [f"{spec}: {migrated.versions[0]} is current"]
    changes = [f"{spec}:{done.line}: {done.key} {done.what}" for done in migrated.done]
    return [*changes, f"{spec}: {' -> '.join(migrated.versions)}"]
