"""`areal-plugins eval`: scores a checkpoint on a spec's environments."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import asdict, evolve

from areal_core.errors import InputError
from areal_plugins.cli import add_overrides
from areal_plugins.cli.progress import PlainDisplay
from areal_plugins.cli.run import load, log_to, model_directory

if TYPE_CHECKING:
    from areal_core.pipeline.run import EvaluationReport, Scores

EXAMPLES = """\
examples:
  areal-plugins eval spec.yaml --checkpoint runs/NAME-TIME/checkpoints/step-N
  areal-plugins eval spec.yaml --checkpoint DIR --samples 1000 --json

The tasks are the held-out ones that the run itself evaluates on, answered as `evaluation.sampling`
says (greedy by default).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`eval SPEC --checkpoint DIR [--samples N] [--set K=V]... [--json]`."""
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help="YAML file")
    model = "checkpoint, run directory (its newest whole checkpoint), or Hugging Face directory of the spec's model"
    parser.add_argument("--checkpoint", type=Path, required=True, metavar="DIR", help=model)
    parser.add_argument("--samples", type=int, metavar="N", help="tasks in all; evaluation.samples by default")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    add_overrides(parser)


def main(args: argparse.Namespace) -> int:
    """Print the scores."""
    from areal_core.pipeline.clock import debug_mode, make_loop
    from areal_core.pipeline.compose import compose
    from areal_core.pipeline.score import score_model
    from areal_plugins.builtin.ownership import temporary

    model = model_directory(args.checkpoint)
    if args.samples is not None and args.samples < 1:
        raise InputError("--samples", f"{args.samples} is not at least 1")
    experiment = evolve(load(args.spec, args.overrides), trackers=())
    with temporary("areal-evaluation-") as folder:
        log_to(folder)
        composition = compose(experiment, folder, debug_mode())
        with asyncio.Runner(loop_factory=lambda: make_loop(virtual=composition.debug)) as runner:
            report = runner.run(score_model(composition, model, _Warnings(sys.stderr), args.samples))
    if report is None:
        raise InputError(args.spec, "no environment has held-out tasks", "see evaluation.split")
    print(json.dumps(_data(model, report), indent=2) if args.json else "\n".join(_table(report)))
    return 0


class _Warnings(PlainDisplay):
    """Only what goes wrong: the scores are the command's output."""

    def evaluated(self, report: EvaluationReport) -> None:
        pass


def _data(model: Path, report: EvaluationReport) -> dict[str, object]:
    return {
        "checkpoint": str(model),
        "environments": {name: asdict(scores) for name, scores in report.environments.items()},
    }


def _table(report: EvaluationReport) -> list[str]:
    width = max(len(name) for name in report.environments)
    return [f"{name:<{width}}  {_scores(scores)}" for name, scores in report.environments.items()]


def _scores(scores: Scores) -> str:
    failed = f", {scores.failed} failed" if scores.failed else ""
    return (
        f"accuracy {scores.accuracy:.4f} ± {scores.stderr:.4f}  reward {scores.reward:.4f}  "
        f"length {scores.length:.1f}  truncated {scores.truncated:.1%}  ({scores.tasks} tasks{failed})"
    )
