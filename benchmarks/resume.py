"""Whether a killed run goes on as if nothing had happened: to the bit in debug mode, within noise on processes.

The controller is killed (SIGKILL) at each of the points of `_cuts.py` and the run resumed. In debug mode figures,
evaluations and trajectories must be those of a run that was not killed, to the last bit. On executor `local`, whose
order of events nobody fixes, the committed history must be sound: every step once, no group trained on twice, nothing
staler than the bound; and held-out accuracy after the last step that of runs which were not killed, within noise.
`--quick` takes every fifth point, and has too few runs to tell accuracies apart.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NoReturn

from _cuts import POINTS, stop_at
from _report import finish, table
from _run import read, run, write_spec
from ruamel.yaml import YAML

from areal_plugins.cli import main as command

SPECS = Path(__file__).parent.parent / "specs"
STEPS, STALENESS, ENGINES, SAMPLES = 12, 2, 2, 400
TOLERANCE = 3.0
"""Standard errors by which mean accuracies may differ."""


# --- specs -----------------------------------------------------------------------------------------


def quickstart(**changes: Any) -> dict[str, Any]:
    """The spec, with the path of its plugin made absolute."""
    spec: dict[str, Any] = YAML(typ="safe").load(SPECS / "quickstart.yaml")
    return {**spec, "plugins": [str((SPECS / plugin).resolve()) for plugin in spec["plugins"]], **changes}


def imitation() -> dict[str, Any]:
    """The first stage alone, whose weights the runs on processes begin with."""
    spec = quickstart(evaluation={"before": False, "after": False})
    return {**spec, "stages": spec["stages"][:1]}


def reinforcement(samples: int, **training: Any) -> dict[str, Any]:
    """The second stage, short, with all that may be under way when it is cut."""
    spec = quickstart()
    del spec["stages"]
    return {
        **spec,
        "training": {**spec["training"], "max_steps": STEPS, **training},
        "pipeline": {"max_staleness": STALENESS},
        "checkpoint": {"every": 4, "keep": 1},
        "evaluation": {"every": 3, "samples": samples},
    }


# --- runs ------------------------------------------------------------------------------------------


def cut(point: str, spec: Path, folder: Path, *options: str) -> str:
    """Run `spec` in `folder`, kill it at `point` and resume it; what is wrong with that, or nothing."""
    killed, said = areal(["run", str(spec), "--run-dir", str(folder), *options], folder.with_suffix(".cut"), point)
    if killed != -signal.SIGKILL:
        return f"it was not cut, but ended with {killed}: {said[-500:]}"
    resumed, said = areal(["run", str(spec), "--resume", str(folder)], folder.with_suffix(".resumed"))
    return "" if resumed == 0 else f"it was not resumed: {said[-500:]}"


def areal(arguments: Sequence[str], log: Path, point: str = "") -> tuple[int, str]:
    """A command in a process of its own, which ends at `point`: its exit code, and what it said.

    A fork of this process, which has imported what takes longer than the rest of a short run.
    """
    if (pid := os.fork()) == 0:
        _become(arguments, log, point)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return code, log.read_text(errors="replace")


def _become(arguments: Sequence[str], log: Path, point: str) -> NoReturn:
    code = 1
    try:
        with log.open("wb") as output:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
        if point:
            stop_at(POINTS[point])
        code = command(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def preload() -> None:
    """Import what a debug run imports."""
    for module in ("models.tokenizer", "trainer.trainer", "engine.engine"):
        import_module(f"areal_plugins.builtin.{module}")


def written(folder: Path) -> dict[str, bytes]:
    """All that a rerun must repeat; which incarnation of the trainer made the weights is no part of it."""
    files = [folder / "metrics.jsonl", folder / "evaluations.jsonl", *trained(folder)]
    return {file.name: re.sub(rb'"\d+\.(\d+)"', rb'"\1"', file.read_bytes()) for file in files}


def trained(folder: Path) -> list[Path]:
    """The committed trajectories. What a tracker kept of them as they were collected tells of lost steps, too."""
    return sorted((folder / "trajectories").glob("steps-*.jsonl"))


def unsound(folder: Path) -> str:
    """What of the committed history in `folder` must not be, or nothing."""
    steps = [line["step"] for line in read(folder).metrics]
    if steps != list(range(1, STEPS + 1)):
        return f"its steps are {steps}"
    lag = max(line["lag/max"] for line in read(folder).metrics)
    if lag > STALENESS:
        return f"a token lags by {lag}"
    groups = re.findall(rb'"sequence":(\d+)', b"".join(path.read_bytes() for path in trained(folder)))
    return f"{len(groups) - len(set(groups))} groups were trained on twice" if len(set(groups)) < len(groups) else ""


def accuracy(folder: Path) -> float:
    """Held-out, after the last step."""
    (scores,) = read(folder).evaluations[-1]["environments"].values()
    return float(scores["accuracy"])


# --- the two halves --------------------------------------------------------------------------------


def exact(points: Sequence[str], work: Path) -> dict[str, str]:
    """What differs, by point, in debug mode."""
    os.environ["AREAL_DEBUG_MODE"] = "1"
    preload()
    spec = write_spec(reinforcement(16, batch_size=16), work / "debug.yaml")
    run(spec, work / "debug")
    whole, found = written(work / "debug"), {}
    for number, point in enumerate(points):
        folder = work / f"debug-{number}"
        problem = cut(point, spec, folder)
        found[point] = problem or ", ".join(
            name for name, content in written(folder).items() if content != whole.get(name)
        )
        print(f"debug mode, {point}: {found[point] or 'the same'}", flush=True)
    del os.environ["AREAL_DEBUG_MODE"]
    return found


def sound(points: Sequence[str], uncut: int, work: Path) -> tuple[dict[str, str], list[float], list[float]]:
    """What is wrong, by point, on processes; and the accuracies of the cut runs and of as many as `uncut` others."""
    run(write_spec(imitation(), work / "imitate.yaml"), work / "imitate")
    spec = reinforcement(SAMPLES, batch_size=256, updates=4)
    spec = {**spec, "resources": {"infer": {"num_gpus": ENGINES}}}
    path, start = write_spec(spec, work / "local.yaml"), work / "imitate"
    found, cuts = {}, []
    for number, point in enumerate(points):
        folder = work / f"local-{number}"
        found[point] = cut(point, path, folder, "--warm-start", str(start)) or unsound(folder)
        cuts += [accuracy(folder)] if not found[point] else []
        print(f"local, {point}: {found[point] or f'sound, {cuts[-1]:.3f}'}", flush=True)
    whole = [work / f"whole-{number}" for number in range(uncut)]
    for folder in whole:
        run(path, folder, warm_start=start)
    return found, cuts, [accuracy(folder) for folder in whole]


def apart(one: Sequence[float], two: Sequence[float]) -> float:
    """By how many standard errors the means differ; a run's own is at least that of its `SAMPLES` tasks."""
    if not one or not two:
        return float("inf")
    mean = fmean([*one, *two])
    spread = max(sqrt(mean * (1 - mean) / SAMPLES), *(stdev(values) for values in (one, two) if len(values) > 1), 1e-9)
    return abs(fmean(one) - fmean(two)) / (spread * sqrt(1 / len(one) + 1 / len(two)))


def main() -> int:
    """Cut and resume at every point, both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("debug", "local"), help="one half")
    options = parser.parse_args()
    points = list(POINTS)[:: 5 if options.quick else 1]
    figures: dict[str, Any] = {"points": len(points)}
    with tempfile.TemporaryDirectory(prefix="areal-resume-") as folder:
        work = Path(folder)
        debug = exact(points, work) if options.only != "local" else {}
        local, cuts, whole = sound(points, 1 if options.quick else 5, work) if options.only != "debug" else ({}, [], [])
    print(table([("killed", "debug mode", "local"), *(_row(point, debug, local) for point in points)]))
    ok = not any(debug.values()) and not any(local.values())
    if local:
        distance = apart(cuts, whole)
        figures |= {"accuracy": fmean(cuts or [0]), "accuracy_uncut": fmean(whole), "standard_errors": distance}
        means = f"{fmean(cuts or [0]):.3f} of cut runs, {fmean(whole):.3f} of others"
        print(f"\nheld-out accuracy {means}: {distance:.1f} standard errors apart")
        ok = ok and (options.quick or distance <= TOLERANCE)
    figures |= {"exact": sum(not problem for problem in debug.values())}
    figures |= {"sound": sum(not problem for problem in local.values())}
    return finish("resume", figures, "the same run, never killed", ok)


def _row(point: str, debug: Mapping[str, str], local: Mapping[str, str]) -> tuple[str, str, str]:
    told = [half.get(point) for half in (debug, local)]
    exact_one, sound_one = (
        "-" if one is None else one or good for one, good in zip(told, ("the same", "sound"), strict=True)
    )
    return point, exact_one, sound_one


if __name__ == "__main__":
    sys.exit(main())
