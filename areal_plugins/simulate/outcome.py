"""What came of a simulated run, read from its run directory as of any other run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from areal_core.pipeline.stopwatch import SPAN
from areal_plugins.builtin.ownership import temporary
from areal_plugins.simulate.plan import Job, run
from areal_plugins.simulate.saturation import Rate, saturated

STEPS = 10
"""Steady steps that are measured, unless more are asked for."""

SWINGS = 2
"""Whole swings of the pace that are measured at least."""


@frozen
class Outcome:
    """Steady figures, the start and the end of the run left out.

    They are of `steps` steps. Rates count the tokens that were trained on, `tokens` those of prompts included, but
    for `generated`, those of the answers that ended. `utilization` is
    `(G + T) / ((n_g + n_t) wall)`, G and T the device-seconds that generation and training of the same
    tokens take at saturated throughput; `best` is what it can be at this split. `lags` are the shares of
    the trained tokens at each lag; `waits` shares of a pool's time, by what it is spent on.
    """

    job: Job
    steps: int
    tokens: float
    answers: float
    generated: float
    steps_an_hour: float
    utilization: float
    best: float
    engines_busy: float
    trainers_busy: float
    lags: dict[int, float]
    waits: dict[str, float]
    step_seconds: float
    train_seconds: float

    @property
    def mean_lag(self) -> float:
        """Of the trained tokens."""
        return sum(lag * share for lag, share in self.lags.items())


def window(job: Job, steps: int = STEPS) -> int:
    """At least `steps` steps, in whole swings of the pace.

    Generation runs ahead by `max_staleness + 1` batches, is held by the bound, and is let go on when the oldest of
    them is trained: some of so many steps wait long, the others hardly, and a part of them says little of the whole.
    """
    swing = job.max_staleness + 1
    return max(SWINGS, -(-steps // swing)) * swing


def simulate(job: Job, steps: int = STEPS, warm: int | None = None, after: int | None = None) -> Outcome:
    """Run `job` and see what comes of `steps` steps, after `warm` and before `after` others.

    At the start generation runs ahead until the bound or the pace of training holds it; towards the end it stops.

    Raises:
        InputError: it cannot be.
        RunFailed: it did not end.

    """
    warm = job.max_staleness + 2 if warm is None else warm
    after = job.max_staleness + 1 if after is None else after
    with temporary("areal-simulation-") as folder:
        directory = run(job, warm + steps, folder, after)
        return _outcome(job, directory, warm, steps, saturated(job.scenario(), job.max_concurrent, job.batch_size))


def _outcome(job: Job, directory: Path, warm: int, steps: int, rate: Rate) -> Outcome:
    metrics, timings = (_lines(directory / f"{name}.jsonl") for name in ("metrics", "timings"))
    wall = timings[warm + steps - 1]["elapsed"] - timings[warm - 1]["elapsed"]
    before, generating_until = metrics[warm - 1], _generating(timings)
    busy = (generating_until[warm + steps] - generating_until[warm]) / wall
    metrics, timings = metrics[warm : warm + steps], timings[warm : warm + steps]
    grain = job.scenario().grain
    generated = (metrics[-1]["tokens/generated"] - before["tokens/generated"]) * grain
    answers = sum(line["length/mean"] * grain * line["simulated/trajectories"] for line in metrics)
    training = sum(line["train"] for line in timings)
    generating = answers / rate.engine * job.engine_devices
    trained = training * job.trainers
    g, t = rate.seconds(job.engines)
    balanced = (g * job.engines * job.engine_devices + t * job.trainers) / (job.devices * max(g, t))
    return Outcome(
        job=job,
        steps=steps,
        tokens=sum(line["simulated/tokens"] for line in metrics) / wall,
        answers=answers / wall,
        generated=generated / wall,
        steps_an_hour=3600 * steps / wall,
        utilization=(generating + trained) / (job.devices * wall),
        best=balanced,
        engines_busy=generating / (job.engines * job.engine_devices * wall),
        trainers_busy=training / wall,
        lags=_lags(metrics),
        waits=_waits(timings, wall, busy),
        step_seconds=wall / steps,
        train_seconds=training / steps,
    )


def _lags(metrics: Sequence[dict[str, Any]]) -> dict[int, float]:
    shares: defaultdict[int, float] = defaultdict(float)
    for line in metrics:
        for name, share in line.items():
            lag = name.removeprefix("lag/")
            if name.startswith("lag/") and lag.isdigit():
                shares[int(lag)] += share / len(metrics)
    return dict(sorted(shares.items()))


def _generating(timings: Sequence[dict[str, Any]]) -> list[float]:
    """Seconds that engines have generated, on average, until each step begins: a line knows the last `SPAN` steps."""
    ends, totals = [0.0], [0.0]
    for step, line in enumerate(timings, 1):
        first = max(0, step - SPAN)
        ends.append(ends[-1] + line["wall"])
        totals.append(totals[first] + line["engines_busy"] * (ends[step] - ends[first]))
    return totals


def _waits(timings: Sequence[dict[str, Any]], wall: float, busy: float) -> dict[str, float]:
    """Shares of the time: the trainer without a batch, the hand-over of weights, engines that are held or idle."""
    waits = {
        "trainer waits for a batch": sum(line["wait"] for line in timings) / wall,
        "trainer hands over weights": sum(line["publish"] for line in timings) / wall,
        "engines swap weights": sum(line["held"] for line in timings) / wall,
    }
    return {**waits, "engines have nothing to do": max(0.0, 1 - busy - waits["engines swap weights"])}


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]
