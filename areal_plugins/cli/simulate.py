"""`areal-plugins simulate`: what a spec would do on hardware that nobody here owns."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from areal_core.errors import InputError, Severity, SpecError
from areal_plugins.cli import add_overrides, dumped

if TYPE_CHECKING:
    from areal_core.spec.resolve import Draft
    from areal_plugins.simulate.hardware import Hardware
    from areal_plugins.simulate.outcome import Outcome
    from areal_plugins.simulate.plan import Job

EXAMPLES = """\
examples:
  areal-plugins simulate spec.yaml --hardware h800
  areal-plugins simulate spec.yaml --hardware 910c --devices 512 --lengths lognormal:4000,0.8,16384
  areal-plugins simulate spec.yaml --lengths-from runs/NAME-TIME --plot plan.svg --json

The pipeline is the real one, on a virtual clock; engines, trainer, transport and rewards take the time that
cost models say. Distributions are fixed:N, uniform:LOW,HIGH, log-uniform:LOW,HIGH or
lognormal:MEAN,SIGMA[,MAX]; no answer is longer than the spec's inference.sampling.max_new_tokens.
docs/simulate.md has the models, the hardware's figures, and how far to trust them.
"""

DEFAULTS = {"cpu": "cpu", "cuda": "h800", "npu": "910b"}
"""Hardware by platform, where none is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """`simulate SPEC [--set K=V]... [--devices N] ...`."""
    parser.epilog = EXAMPLES
    parser.add_argument("spec", metavar="SPEC", help="YAML file")
    add_overrides(parser)
    parser.add_argument("--devices", type=int, metavar="N", help="devices of both pools; the spec's by default")
    parser.add_argument("--hardware", metavar="NAME", help="h800, h200, 910b, 910c or cpu; by the spec's platform")
    parser.add_argument("--model", metavar="NAME", help="sizes of a known model, where the spec's is not here")
    lengths = parser.add_mutually_exclusive_group()
    lengths.add_argument(
        "--lengths", metavar="D", help="tokens of answers, cut at max_new_tokens (log-uniform from a tenth of it)"
    )
    lengths.add_argument("--lengths-from", type=Path, metavar="RUN", help="as measured in this run directory")
    parser.add_argument(
        "--alike", type=float, metavar="SHARE",
        help="of the variance of the answers' log-length, between prompts (0: independent)",
    )  # fmt: skip
    parser.add_argument("--prompts", metavar="D", default="fixed:256", help="tokens of prompts (fixed:256)")
    parser.add_argument("--rewards", metavar="D", default="fixed:0", help="seconds until an answer is judged (fixed:0)")
    parser.add_argument("--steps", type=int, default=10, metavar="N", help="steady steps to measure at least (10)")
    parser.add_argument("--no-search", action="store_true", help="only the split as written, or the balanced one")
    parser.add_argument("--plot", metavar="FILE.svg", help="write a plot of the splits and the lags")
    parser.add_argument("--json", action="store_true", help="machine-readable output")


def main(args: argparse.Namespace) -> int:
    """Simulate and print."""
    from areal_plugins.simulate.outcome import simulate, window
    from areal_plugins.simulate.split import balanced, best, search

    if args.plot and Path(args.plot).suffix.lower() not in (".svg", ""):
        raise InputError("--plot", f"{args.plot!r} does not end in .svg", "the plot is an SVG file")
    job = job_from(args)
    steps = window(job, args.steps)
    looked = [] if args.no_search else search(job, steps)
    written = None
    if args.devices is None:
        written = next((outcome for outcome in looked if outcome.job == job), None) or simulate(job, steps)
    if looked and written is not None and written not in looked:
        looked = sorted([*looked, written], key=lambda outcome: outcome.job.engines)
    chosen = best(looked) if looked else written or simulate(balanced(job), steps)
    print(dumped(_data(written, looked, chosen)) if args.json else "\n".join(_text(written, looked, chosen)))
    if args.plot:
        _plot(args.plot, looked or [chosen], chosen)
    return 0


def job_from(args: argparse.Namespace) -> Job:
    """What the command line asks for.

    Raises:
        SpecError: the spec is wrong. InputError: an option is.

    """
    from attrs import evolve

    from areal_core.spec import examine
    from areal_plugins.simulate.lengths import parse
    from areal_plugins.simulate.plan import job_of
    from areal_plugins.simulate.shape import shape_of

    examined = examine(args.spec, args.overrides)
    if not examined.drafts or any(finding.severity is Severity.ERROR for finding in examined.findings):
        raise SpecError(examined.findings)
    draft = examined.drafts[-1]
    if args.steps < 1:
        raise InputError("--steps", f"{args.steps} is too few", "1 is the least")
    job = job_of(draft, _hardware(args.hardware, draft), shape_of(draft, args.model), _lengths(args, draft))
    job = evolve(job, prompts=parse(args.prompts, "--prompts", "a prompt"), rewards=parse(args.rewards, "--rewards"))
    if args.devices is None:
        return job
    from areal_plugins.simulate.split import balanced

    return balanced(evolve(job, engines=1, trainers=args.devices - job.engine_devices))


def _hardware(name: str | None, draft: Draft) -> Hardware:
    from areal_plugins.simulate.hardware import PROFILES

    part = draft.parts.get(("platform",))
    name = name or DEFAULTS.get(part.name if part else "", "")
    found = PROFILES.get(name.lower())
    if found is None:
        problem = f"{name!r} is not known" if name else "the spec's platform does not say which hardware it is"
        raise InputError("--hardware", problem, f"one of {', '.join(PROFILES)}")
    return found


def _lengths(args: argparse.Namespace, draft: Draft) -> Any:
    from attrs import evolve

    from areal_plugins.simulate.lengths import Lengths, measured, parse

    if args.lengths_from is not None:
        if args.alike is not None:
            raise InputError("--alike", "the run's groups are drawn whole", "leave one of the two out")
        return measured(args.lengths_from)
    alike = args.alike or 0.0
    if not 0 <= alike <= 1:
        raise InputError("--alike", f"{alike:g} is no share", "a number from 0 to 1")
    if args.lengths is not None:
        return evolve(parse(args.lengths, "--lengths", "an answer"), alike=alike)
    longest = draft.spec.inference.sampling.max_new_tokens
    return Lengths("log-uniform", max(1.0, longest / 10), float(longest), alike=alike)


def _plot(file: str, outcomes: list[Outcome], chosen: Outcome) -> None:
    from areal_plugins.cli.writing import write_whole
    from areal_plugins.simulate.plot import svg

    title = f"{chosen.job.devices} x {chosen.job.hardware.name}, staleness {chosen.job.max_staleness}"
    write_whole(file, svg(outcomes, chosen, title))


# --- output ------------------------------------------------------------------------------------------


def _data(written: Outcome | None, looked: list[Outcome], chosen: Outcome) -> dict[str, Any]:
    from attrs import asdict

    def figures(outcome: Outcome) -> dict[str, Any]:
        data = asdict(outcome, recurse=False)
        job: Job = data.pop("job")
        split = {"engines": job.engines, "engine_devices": job.engine_devices, "trainers": job.trainers}
        return {**split, **data, "lags": {str(lag): share for lag, share in outcome.lags.items()}}

    return {
        "job": asdict(chosen.job),
        "as_written": figures(written) if written else None,
        "splits": [figures(outcome) for outcome in looked],
        "best": figures(chosen),
    }


def _text(written: Outcome | None, looked: list[Outcome], chosen: Outcome) -> Iterator[str]:
    from areal_plugins.simulate.plot import bar

    job = chosen.job
    size = _size(job.shape.parameters)
    yield f"{job.devices} x {job.hardware.name}, {size} parameters, staleness {job.max_staleness}"
    batch = f"batches of {_counted(job.batch_size, 'answer')} in groups of {job.group_size}"
    cut = job.answers.above(job.longest)
    yield f"{batch}, at most {_counted(job.longest, 'token')} each" + (f" ({cut:.1%} are cut there)" if cut else "")
    if written is not None:
        yield "\nas written" + (", which is the best split" if looked and written is chosen else "")
        yield from _figures(written)
    if written is not chosen:
        yield "\nbest split" if looked else "\nbalanced split"
        yield from _figures(chosen)
    if looked:
        most = max(outcome.tokens for outcome in looked)
        yield "\nengines x devices + trainers, tokens/s, utilization"
    for outcome in looked:
        way = f"{outcome.job.engines} x {outcome.job.engine_devices} + {outcome.job.trainers}"
        yield f"  {way:<16} {outcome.tokens:>12,.0f} {outcome.utilization:>7.1%}  {bar(outcome.tokens / most)}"
    yield "\nlag of the trained tokens"
    yield from (f"  {lag:>3} {share:>7.1%}  {bar(share)}" for lag, share in chosen.lags.items())
    yield "\nwhere time is waited"
    yield from (f"  {share:>6.1%} {what}" for what, share in chosen.waits.items())


def _figures(outcome: Outcome) -> Iterator[str]:
    job = outcome.job
    yield f"  {_pools(job)}"
    pace = f"{outcome.steps_an_hour:.1f} steps/h, {outcome.step_seconds:.1f} s each"
    yield f"  {outcome.tokens:,.0f} tokens/s trained on over {_counted(outcome.steps, 'step')} ({pace})"
    yield f"  utilization {outcome.utilization:.3f} of at most {outcome.best:.3f} at this split"
    yield f"  engines {outcome.engines_busy:.1%}, trainers {outcome.trainers_busy:.1%}, mean lag {outcome.mean_lag:.2f}"


def _pools(job: Job) -> str:
    engines = f"{_counted(job.engines, 'engine')} of {_counted(job.engine_devices, 'device')}"
    generate, train = ("generates" if job.engines == 1 else "generate"), ("trains" if job.trainers == 1 else "train")
    return f"{engines} {generate}, {_counted(job.trainers, 'device')} {train}"


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _size(parameters: float) -> str:
    if parameters >= 1e8:
        return f"{parameters / 1e9:.2f} B"
    return f"{parameters / 1e6:.2f} M" if parameters >= 1e5 else f"{parameters:,.0f}"
