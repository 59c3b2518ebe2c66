"""`areal-plugins schema`: JSON Schema of the spec, for editors."""

from __future__ import annotations

import argparse

from areal_core.manager import Manager
from areal_core.spec.schema import schema
from areal_plugins.cli import dumped

EXAMPLES = """\
examples:
  areal-plugins schema > areal.schema.json

and as the first line of a spec, for editors that run yaml-language-server:
  # yaml-language-server: $schema=areal.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`schema [--plugin FILE]...`."""
    parser.epilog = EXAMPLES
    parser.add_argument("--plugin", action="append", default=[], metavar="FILE", help="also load this plugin file")


def main(args: argparse.Namespace) -> int:
    """Print the schema."""
    print(dumped(schema(Manager.discover(args.plugin))))
    return 0
