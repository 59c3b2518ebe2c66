"""`docs/simulate.md` beside the command."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from areal_plugins.cli.simulate import add_arguments

PAGE = Path(__file__).parents[2] / "docs" / "simulate.md"


def test_the_table_has_every_option_of_the_command():
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = {action.option_strings[0] for action in parser._actions if action.option_strings}
    told = set(re.findall(r"^\| `(--[a-z-]+)", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert told == options - {"--set"}
