"""`python -m areal_plugins.testing.sim`: seeds, one to replay, many in parallel; days; and deliberate bugs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """0: every invariant held; 1: one did not."""
    options = _parser().parse_args(argv)
    if options.mutants is not None or options.mutant:
        from areal_plugins.testing.sim import mutants

        if options.mutant:
            return mutants.hunt_here(options.mutant, options.first, options.seeds or mutants.SEEDS)
        return mutants.hunt(options.mutants, options.seeds or mutants.SEEDS, options.jobs)
    from areal_plugins.testing.sim import runner

    if options.hours:
        return runner.days(options.hours, options.seed or 0)
    if options.seed is not None:
        return runner.replay(options.seed, options.trace)
    return runner.many(options.first, options.seeds or 300, options.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tox run -e sim --", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone, and tell what happened")
    parser.add_argument("--trace", action="store_true", help="with --seed: tell everything that happened")
    parser.add_argument("--seeds", type=int, help="how many seeds (default 300; with --mutants 500)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--hours", type=float, help="one long run instead, at the rates of faults that users report")
    parser.add_argument("--mutants", nargs="*", metavar="NAME", help="find deliberate bugs: all of them, or these")
    parser.add_argument("--mutant", metavar="NAME", help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
