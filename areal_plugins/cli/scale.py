"""`areal-plugins scale`: engines join or leave a running experiment."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from areal_core.errors import InputError, WorkerLost

if TYPE_CHECKING:
    from areal_core.pipeline.control import Change

EXAMPLES = """\
examples:
  areal-plugins scale runs/NAME-TIME --infer 4

Training goes on meanwhile. Engines that join get the current weights before they serve; those that leave
finish what they are at. The command ends once the run has as many engines as were asked for, or cannot.
A run that is resumed begins with as many as its spec says.
Exit codes: 0 done, 1 an engine could not start, 2 bad input, or the run is not going on (any more).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`scale RUN --infer N`."""
    parser.epilog = EXAMPLES
    parser.add_argument("run", type=Path, metavar="RUN", help="directory of a run that is going on, on this machine")
    parser.add_argument("--infer", type=int, required=True, metavar="N", help="engines the run shall have")


def main(args: argparse.Namespace) -> int:
    """Ask the run and say what changed; see the exit codes above."""
    from areal_core.pipeline.elastic import check

    check(args.infer)
    change = asyncio.run(_ask(args.run.absolute(), args.infer))
    print("\n".join(_lines(change, args.infer)))
    return 0


async def _ask(run: Path, engines: int) -> Change:
    from areal_core.pipeline.control import Change, reached

    async with reached(run) as controller:
        try:
            change = await controller.call("scale", engines)
        except WorkerLost as error:
            raise InputError(str(run), "its run ended meanwhile") from error
    assert isinstance(change, Change)
    return change


def _lines(change: Change, engines: int) -> list[str]:
    if change.before == engines:
        return ["there is 1 engine already" if engines == 1 else f"there are {engines} engines already"]
    lines = [f"engines: {change.before} -> {engines}"]
    lines += [f"joined: {name}" for name in change.joined]
    lines += [f"left: {name}" for name in change.left]
    return lines
