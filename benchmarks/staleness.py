"""Whether staleness costs accuracy: held-out scores at `max_staleness` 0, 4 and 8, decoupled and naive, over seeds.

Every run is the reinforcement stage of `specs/quickstart.yaml` from the same weights as the others of its
seed: those that the spec's imitation stage ends with. A batch is trained on in several updates, so that
the policy moves within a step as well, and the trust region of the naive objective (ratios to the policy
that drew a token) and that of the decoupled one (ratios to the policy before the step) come apart. The
learning rate falls to zero, so that the end is not a moment of a walk around the optimum.
With `--work` finished runs stay there, and are not run again.
`--quick` has too few seeds to prove anything.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from _report import finish, table
from _run import Record, read, run, write_spec
from attrs import frozen
from ruamel.yaml import YAML

SPECS = Path(__file__).parent.parent / "specs"
SETTINGS: dict[str, dict[str, Any]] = {
    "0": {"max_staleness": 0},
    "4": {"max_staleness": 4},
    "8": {"max_staleness": 8},
    "8-naive": {"max_staleness": 8, "decoupled": False},
}
CONFIDENCE = 0.95


@frozen
class Outcome:
    """Held-out accuracy before, halfway and at the end of a run, and the mean lag of what it trained on."""

    before: float
    halfway: float
    end: float
    lag: float


# --- runs ------------------------------------------------------------------------------------------


def quickstart() -> dict[str, Any]:
    """The spec that both derive from, with the path of its plugin made absolute."""
    spec: dict[str, Any] = YAML(typ="safe").load(SPECS / "quickstart.yaml")
    return {**spec, "plugins": [str((SPECS / plugin).resolve()) for plugin in spec["plugins"]]}


def imitation(seed: int) -> dict[str, Any]:
    """The first stage alone."""
    spec = quickstart()
    return {**spec, "seed": seed, "stages": spec["stages"][:1], "evaluation": {"before": False, "after": False}}


def reinforcement(seed: int, setting: Mapping[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """The second stage alone, in one setting."""
    spec = quickstart()
    del spec["stages"]
    training = {"max_steps": options.steps, "updates": options.updates, "learning_rate": options.learning_rate}
    optimizer = {**spec["training"]["optimizer"], "schedule": "linear"}
    return {
        **spec,
        "seed": seed,
        "training": {**spec["training"], **training, "optimizer": optimizer},
        "objective": {**spec["objective"], "decoupled": setting.get("decoupled", True)},
        "pipeline": {**spec["pipeline"], "max_staleness": setting["max_staleness"]},
        "evaluation": {"every": options.steps // 2, "samples": options.tasks},
    }


def once(name: str, spec: Mapping[str, Any], work: Path, after: str | None = None) -> Record:
    """The run `name`, from the weights that the run `after` ended with; from `work` if it is there already."""
    directory, ended = work / name, work / f"{name}.ended"
    what = json.dumps([spec, (work / f"{after}.ended").read_text() if after else None])
    if not ended.exists() or ended.read_text() != what:
        shutil.rmtree(directory, ignore_errors=True)
        run(write_spec(spec, work / f"{name}.yaml"), directory, warm_start=checkpoint(work / after) if after else None)
        ended.write_text(what)
    return read(directory)


def checkpoint(directory: Path) -> Path:
    """The only one of a run that kept its last."""
    (found,) = (directory / "checkpoints").glob("step-*")
    return found


def outcome(setting: str, seed: int, options: argparse.Namespace) -> Outcome:
    """One run of one setting, after the imitation that its seed's runs share."""
    first = f"imitate-{seed}"
    once(first, imitation(seed), options.work)
    record = once(f"{setting}-{seed}", reinforcement(seed, SETTINGS[setting], options), options.work, after=first)
    scores = {line["step"]: line["environments"]["backwards"]["accuracy"] for line in record.evaluations}
    lag = fmean(line["lag/mean"] for line in record.metrics)
    return Outcome(scores[0], scores[options.steps // 2], scores[options.steps], lag)


# --- statistics ------------------------------------------------------------------------------------


def error(values: Sequence[float]) -> float:
    """The standard error of the mean; NaN of fewer than two."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def difference(a: Sequence[float], b: Sequence[float]) -> tuple[float, float]:
    """Mean of `a` less mean of `b`, and half its confidence interval (Welch, 1947); NaN without two of each."""
    first, second = error(a) ** 2, error(b) ** 2
    if not first + second > 0:
        return fmean(a) - fmean(b), 0.0 if first + second == 0 else math.nan
    freedom = (first + second) ** 2 / (first**2 / (len(a) - 1) + second**2 / (len(b) - 1))
    return fmean(a) - fmean(b), student((1 + CONFIDENCE) / 2, freedom) * math.sqrt(first + second)


def student(share: float, freedom: float) -> float:
    """The quantile above one half of Student's distribution, by bisection on its integrated density."""
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)

    def below(x: float, parts: int = 2000) -> float:
        density = (scale * (1 + ((i + 0.5) * x / parts) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(parts))
        return 0.5 + math.fsum(density) * x / parts

    low, high = 0.0, 200.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < share else (low, middle)
    return low


# --- the table -------------------------------------------------------------------------------------


def name_of(setting: str) -> str:
    """A setting as readers know it."""
    options = SETTINGS[setting]
    return f"{options['max_staleness']}, {'decoupled' if options.get('decoupled', True) else 'naive'}"


def rows(found: Mapping[str, Sequence[Outcome]]) -> list[list[str]]:
    """Mean and standard error over the seeds, a line a setting."""
    lines = [["max_staleness", "seeds", "mean lag", "before", "halfway", "end"]]
    for setting, outcomes in found.items():
        scores = ([getattr(outcome, part) for outcome in outcomes] for part in ("before", "halfway", "end"))
        lag = f"{fmean(outcome.lag for outcome in outcomes):.2f}"
        lines.append([name_of(setting), str(len(outcomes)), lag, *map(with_error, scores)])
    return lines


def with_error(values: Sequence[float]) -> str:
    """The mean and its standard error, where there is one."""
    return f"{fmean(values):.3f}" + (f" ± {error(values):.3f}" if len(values) > 1 else "")


def compare(found: Mapping[str, Sequence[Outcome]], a: str, b: str) -> dict[str, Any]:
    """How far apart two settings end."""
    ends = ([outcome.end for outcome in found[setting]] for setting in (a, b))
    apart, half = difference(*ends)
    print(f"{name_of(a)} less {name_of(b)}, at the end: {apart:+.3f} ± {half:.3f} ({CONFIDENCE:.0%} confidence)")
    known = math.isfinite(half)
    return {"difference": apart, "half_interval": half if known else None, "within_noise": known and abs(apart) <= half}


def markdown(lines: Sequence[Sequence[str]]) -> str:
    """The table for the documentation."""
    head, *body = (f"| {' | '.join(line)} |" for line in lines)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *body]) + "\n"


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two seeds of 0 and 4, few steps")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="settings")
    parser.add_argument("--steps", type=int, default=150, help="batches of the reinforcement stage")
    parser.add_argument("--updates", type=int, default=4, help="optimizer steps a batch")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--tasks", type=int, default=400, help="held-out tasks of an evaluation")
    parser.add_argument("--work", type=Path, help="where runs are kept, so that a later call goes on")
    parser.add_argument("--markdown", type=Path, help="write the table there as well")
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.only, options.steps = [0, 1], ["0", "4"], 40
    return options


def main() -> int:
    """Run what is asked for, compare, and print."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        options.work = (options.work or Path(folder)).resolve()
        options.work.mkdir(parents=True, exist_ok=True)
        found: dict[str, list[Outcome]] = {setting: [] for setting in options.only}
        for seed in options.seeds:
            for setting in options.only:
                found[setting].append(outcome(setting, seed, options))
                print(f"seed {seed}, {name_of(setting)}: {found[setting][-1]}", flush=True)
    return report(options, found)


def report(options: argparse.Namespace, found: Mapping[str, Sequence[Outcome]]) -> int:
    """The table, the comparisons, the JSON line."""
    lines = rows(found)
    print(table(lines))
    if options.markdown:
        options.markdown.write_text(markdown(lines), encoding="utf-8")
    pairs = [pair for pair in (("4", "0"), ("8", "0"), ("8", "8-naive")) if set(pair) <= set(found)]
    apart = {f"{a} less {b}": compare(found, a, b) for a, b in pairs}
    figures = {
        "accuracy": {setting: fmean(o.end for o in outcomes) for setting, outcomes in found.items()},
        "apart": apart,
        "seeds": options.seeds,
        "steps": options.steps,
        "updates": options.updates,
    }
    same = apart.get("4 less 0")
    return finish("staleness", figures, "the same runs with max_staleness 0", same is not None and same["within_noise"])


if __name__ == "__main__":
    sys.exit(main())
