"""A run under fire beside one in peace: workers of every role and the controller are killed and stopped at random.

The spec is quickstart's with two engines and two rollout workers. Blows fall all through the run, at steps drawn from
a seed, and while workers start after the controller was killed. The run must end with the steps that were asked for,
its directory must hold the invariants of `_history.py`, its held-out accuracy must be that of undisturbed runs of other
seeds within noise, and nothing may be left behind.
"""

from __future__ import annotations

import argparse
import math
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _history import Promise, lines, problems
from _report import finish, table
from _run import run, write_spec
from _siege import Failed, Siege
from attrs import define, field, frozen
from staleness import quickstart

WORKERS = ("trainer", "engine", "rollout")
ROLES = (*WORKERS, "preload")
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
HEARTBEAT = 5.0
START = 30.0
"""Seconds that a worker may take to answer: one that is stopped before it does is noticed by that."""
PATIENCE = 300.0
"""Seconds without progress after which a run has failed."""
Z = 3.0
"""Standard errors that accuracies may differ by."""


@frozen
class Blow:
    """At step `step`, after `wait` more seconds: a signal for a worker of a role, or for the controller.

    At step 0 it falls right after the one before, whether the run has begun or not.
    """

    step: int
    wait: float
    role: str
    number: signal.Signals


@define
class Outcome:
    """What the run under fire came to."""

    seconds: float = 0.0
    struck: Counter[str] = field(factory=Counter)
    missed: int = 0
    found: list[str] = field(factory=list)
    accuracy: float = math.nan
    stderr: float = math.nan


def spec(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Quickstart with more workers, that is patient with them, and saves often."""
    given = quickstart()
    first, second = given["stages"]
    first = {**first, "training": {**first["training"], "max_steps": options.imitate}}
    return {
        **given,
        "seed": seed,
        "resources": {"infer": {"num_gpus": 2}, "rollout": {"cpus": 2}},
        "training": {**given["training"], "max_steps": options.reinforce},
        "stages": [first, second],
        "executor": {"type": "local", "local": {"start_timeout": START}},
        "supervision": {"heartbeat_timeout": HEARTBEAT, "max_restarts": 1000, "restart_backoff": 0.1},
        "evaluation": {"before": False, "samples": options.samples},
        "checkpoint": {"every": options.every, "keep": 2},
    }


def promise(given: dict[str, Any]) -> Promise:
    """What `spec` asks for."""
    first = given["stages"][0]["training"]
    last, batch, size = (
        given["training"]["max_steps"],
        given["training"]["batch_size"],
        given["objective"]["group_size"],
    )
    steps = first["max_steps"] + last
    stages = {"imitate": (first["max_steps"], first["batch_size"], 1), "reinforce": (steps, batch // size, size)}
    return Promise(steps, given["pipeline"]["max_staleness"], stages, None)


def schedule(seed: int, steps: int, options: argparse.Namespace) -> list[Blow]:
    """Blows evenly over the run; each kill of the controller is followed by one of a worker that starts after it.

    The last is that the controller is stopped for a while. The last quarter of the steps is left out: a fast machine
    takes many steps in the time of a blow, and the run must not end before they all fell.
    """
    draw = random.Random(seed)
    falls = [(ROLES[n % len(ROLES)], SIGNALS[n % 3 == 2]) for n in range(options.kills - options.controllers)]
    draw.shuffle(falls)
    beheading = ("controller", signal.SIGKILL)
    for n in range(1, options.controllers + 1):
        falls.insert(n * len(falls) // (options.controllers + 1) + 1, beheading)
    falls.append(("controller", signal.SIGSTOP))
    blows, apart = [], 0.75 * steps / len(falls)
    for n, (role, number) in enumerate(falls):
        step = 1 + int(apart * n + draw.uniform(0, 0.7 * apart))
        blows.append(Blow(step, draw.uniform(0, 0.5), role, number))
        if (role, number) == beheading:
            blows.append(Blow(0, draw.uniform(0, 4), draw.choice(WORKERS), signal.SIGKILL))
    return blows


def under_fire(siege: Siege, blows: Sequence[Blow], outcome: Outcome) -> None:
    """The whole run."""
    began = time.monotonic()
    siege.start()
    for blow in blows:
        if blow.step and not siege.reach(blow.step, time.monotonic() + PATIENCE):
            break
        time.sleep(blow.wait)
        at = siege.step
        role = fall(siege, blow, outcome)
        print(f"{time.monotonic() - began:6.1f} s, step {at}: {blow.number.name} {role}", flush=True)
    siege.finish(time.monotonic() + 2 * PATIENCE)
    outcome.seconds = time.monotonic() - began


def fall(siege: Siege, blow: Blow, outcome: Outcome) -> str:
    """Strike; whom: where what workers are forked from is gone just now, a rollout worker."""
    role = blow.role
    if role != "controller":
        if role == "preload" and not siege.workers(role):
            role = "rollout"
        victims = wait_for(siege, role)
        if not victims:
            outcome.missed += 1
            return f"no {role}"
        siege.strike(random.Random(blow.step).choice(victims), blow.number)
        if blow.number is signal.SIGSTOP and role in WORKERS:
            await_notice(siege)
    elif blow.number is signal.SIGKILL:
        siege.behead()
    else:
        outcome.found += [f"the controller slept and then blamed {text}" for text in siege.doze(1.5 * HEARTBEAT)]
    outcome.struck[f"{role} {blow.number.name}"] += 1
    return role


def await_notice(siege: Siege) -> None:
    """Give the run the time in which it should notice that somebody hangs: the next blow may be for the controller."""
    before, until = len(hung(siege)), time.monotonic() + 1.5 * HEARTBEAT
    while len(hung(siege)) <= before and time.monotonic() < until:
        time.sleep(0.1)


def hung(siege: Siege) -> list[str]:
    """What it has noticed of that kind."""
    return [text for text in siege.losses() if "hung: no heartbeat" in text]


def wait_for(siege: Siege, role: str) -> list[Any]:
    """Its workers, once there are any."""
    until = time.monotonic() + 30
    while not (found := siege.workers(role)) and time.monotonic() < until and siege.controller.poll() is None:
        time.sleep(0.1)
    return found


def assess(siege: Siege, given: dict[str, Any], outcome: Outcome) -> None:
    """All that can be wrong with a run that has ended."""
    outcome.found += problems(siege.run, promise(given))
    outcome.found += [f"left behind: {what}" for what in siege.left()]
    if not hung(siege) and any(outcome.struck[f"{role} SIGSTOP"] for role in WORKERS):
        outcome.found.append("workers were stopped, and no one was found to hang")
    outcome.accuracy, outcome.stderr = accuracy(siege.run)


def accuracy(directory: Path) -> tuple[float, float]:
    """Of the last evaluation, with its standard error."""
    (scores,) = lines(directory / "evaluations.jsonl")[-1]["environments"].values()
    return scores["accuracy"], scores["stderr"]


def apart(outcome: Outcome, peace: Sequence[tuple[float, float]]) -> float:
    """Standard errors between the accuracy under fire and the mean of those in peace."""
    values = [value for value, _ in peace]
    own = max(outcome.stderr**2, statistics.variance(values) if len(values) > 1 else 0.0, 1e-6)
    return (outcome.accuracy - statistics.fmean(values)) / math.sqrt(own * (1 + 1 / len(values)))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer blows and steps, one run in peace")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=28, help="of workers")
    parser.add_argument("--controllers", type=int, default=3, help="kills of the controller")
    parser.add_argument("--peace", type=int, default=3, help="undisturbed runs")
    parser.add_argument("--imitate", type=int, default=250)
    parser.add_argument("--reinforce", type=int, default=150)
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that the run under fire may take")
    parser.add_argument("--work", type=Path, help="where to keep the runs")
    options = parser.parse_args()
    if options.quick:
        options.kills, options.controllers, options.peace = 8, 1, 1
        options.imitate, options.reinforce = 120, 20
    return options


def main() -> int:
    """Both kinds of runs, the table, the JSON line."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        work = (options.work or Path(folder)).resolve()
        work.mkdir(parents=True, exist_ok=True)
        given, outcome = spec(options.seed, options), Outcome()
        siege = Siege(write_spec(given, work / "fire.yaml"), work / "fire")
        try:
            under_fire(siege, schedule(options.seed, promise(given).steps, options), outcome)
            assess(siege, given, outcome)
        except Failed as error:
            outcome.found.append(str(error))
        finally:
            siege.end()
        return report(options, outcome, siege, in_peace(options, work))


def in_peace(options: argparse.Namespace, work: Path) -> list[tuple[float, float]]:
    """Accuracies of undisturbed runs, the first of the same seed."""
    found = []
    for seed in range(options.seed, options.seed + options.peace):
        run(write_spec(spec(seed, options), work / f"peace-{seed}.yaml"), work / f"peace-{seed}")
        found.append(accuracy(work / f"peace-{seed}"))
    return found


def report(options: argparse.Namespace, outcome: Outcome, siege: Siege, peace: list[tuple[float, float]]) -> int:
    """What fell, what came of it."""
    far = apart(outcome, peace)
    workers = sum(n for what, n in outcome.struck.items() if not what.startswith("controller"))
    print(table([["blow", "times"], *sorted(outcome.struck.items())]))
    print(f"resumed {siege.resumes} times after a kill, {siege.recoveries} times after the run gave up")
    print(f"workers ended by themselves {max(siege.orphans, default=0):.1f} s after their controller at the latest")
    print(f"{siege.continued} workers had been stopped, and ended only once they were continued")
    print(f"accuracy {outcome.accuracy:.3f} under fire; in peace {', '.join(f'{a:.3f}' for a, _ in peace)}")
    print("\n".join(outcome.found) or "every invariant holds, nothing is left behind")
    figures = {
        "seconds": outcome.seconds,
        "worker_kills": workers,
        "missed": outcome.missed,
        "controller_kills": siege.resumes,
        "resumes_after_giving_up": siege.recoveries,
        "broken": len(outcome.found),
        "accuracy": outcome.accuracy,
        "accuracy_in_peace": [value for value, _ in peace],
        "standard_errors_apart": far,
        "orphans_seconds": siege.orphans,
        "continued": siege.continued,
    }
    enough = workers >= min(options.kills, 25) and siege.resumes >= options.controllers
    sound = not outcome.found and abs(far) <= Z and siege.recoveries == 0
    quick = outcome.seconds <= options.limit
    return finish("chaos", figures, "the same spec without faults", enough and sound and quick)


if __name__ == "__main__":
    sys.exit(main())
