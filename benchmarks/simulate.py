"""What `simulate` predicts of AReaL's published throughput and of 4,096 devices, and what the controller costs.

One figure is fitted, a factor of all computing times, to the published throughput at staleness 0; all others are
predicted by it and the published settings. `docs/simulate.md` says which settings are not published.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from _areal_admission import areal_admission
from _controller_cost import Cost, medians
from _report import finish, table
from attrs import evolve

from areal_plugins.simulate.hardware import PROFILES
from areal_plugins.simulate.lengths import Lengths
from areal_plugins.simulate.outcome import Outcome, simulate
from areal_plugins.simulate.plan import Job
from areal_plugins.simulate.saturation import saturated
from areal_plugins.simulate.shape import KNOWN
from areal_plugins.simulate.split import balanced

PUBLISHED = {0: 128.7, 1: 269.3, 2: 356.6, 4: 356.6, 8: 371.7}
"""Thousand tokens/s by staleness, R1-Distill-Qwen-1.5B (arXiv 2505.24298)."""

INTERRUPTION = {"deepseek-r1-distill-qwen-1.5b": (231, 207), "deepseek-r1-distill-qwen-7b": (130, 111)}
"""Thousand tokens/s generated with interruption and without, on 4 nodes (the same paper)."""

WITHIN = 0.15
DEVICES = (8, 64, 512, 4096)
BATCH = 96
"""Trajectories of a batch for each device: ten times what is generated at once."""

ANSWERS = Lengths("lognormal", 9550, 27648, 0.8)
"""9,020 tokens on average once cut, 9,280 with a prompt of 256: the published throughput over the published hours."""

IN_FLIGHT = 512
"""Groups that the project's benchmark generates at once (`max_concurrent_rollouts`)."""

UNBOUND = {"deepseek-r1-distill-qwen-1.5b": 12, "deepseek-r1-distill-qwen-7b": 26}
"""Batches that generation may run ahead in the interruption's runs, so that training does not hold it."""

MEMORY = {"deepseek-r1-distill-qwen-1.5b": 0.8, "deepseek-r1-distill-qwen-7b": 0.7}
"""Share of the memory for weights and cache in that benchmark (`mem_fraction_static`)."""

LEAST, SYNCHRONOUS = 0.95, (0.4, 0.5)
RATE, FLAT, ROUNDS = 10_000, 1.5, 3
"""Trajectories a second of the controller at every scale, how far apart scales may be, and rounds through them all."""


# --- AReaL -----------------------------------------------------------------------------------------


def areal(model: str, nodes: int, staleness: int, alike: float) -> Job:
    """A run of the paper: 512 prompts of 16 answers in 4 minibatches, three engines to one trainer, H800."""
    devices = 8 * nodes
    return Job(
        hardware=PROFILES["h800"],
        shape=KNOWN[model],
        answers=evolve(ANSWERS, alike=alike),
        prompts=Lengths("fixed", 256),
        trainers=devices // 4,
        engines=devices * 3 // 4,
        max_concurrent=1024,
        batch_size=512 * 16,
        group_size=16,
        longest=27648,
        max_staleness=staleness,
        updates=4,
        forwards=1,
        recompute=True,  # `gradient_checkpointing`, on by default in its version 0.3 and in its published settings
    )


def fitted(job: Job, wanted: float) -> Job:
    """`job` with all computing slower by the factor that makes its throughput `wanted`."""
    for _ in range(2):
        scale = job.reach.scale * simulate(job, 3).tokens / wanted
        job = evolve(job, reach=evolve(job.reach, scale=scale))
    return job


def staleness(options: argparse.Namespace) -> tuple[Job, list[dict[str, Any]]]:
    """The fit, and the predictions: under this pipeline's bound, or with groups counted as AReaL counts them."""
    with areal_admission() if options.counted_as_areal else nullcontext():
        return _staleness(options)


def _staleness(options: argparse.Namespace) -> tuple[Job, list[dict[str, Any]]]:
    base = fitted(areal("deepseek-r1-distill-qwen-1.5b", options.nodes, 0, options.alike), 1e3 * PUBLISHED[0])
    lines = []
    for bound, published in PUBLISHED.items():
        outcome = simulate(evolve(base, max_staleness=bound), options.steps)
        error = outcome.tokens / 1e3 / published - 1
        lines.append(
            {"staleness": bound, "published": published, "predicted": round(outcome.tokens / 1e3, 1), "error": error,
             "fitted": bound == 0}
        )  # fmt: skip
        print(
            f"staleness {bound}: {outcome.tokens / 1e3:.1f} of {published} thousand tokens/s, {error:+.1%}", flush=True
        )
    return base, lines


def generating(model: str, base: Job, alike: float) -> Job:
    """Generation on 4 nodes that training does not hold; a step takes the trainer as long as the fit says.

    Engines are as fast as the cost models say: those of the fit have small batches most of the time. An update
    without interruption waits for all that an engine was asked for, as SGLang does.
    """
    reach = evolve(base.reach, scale=1.0, train=base.reach.train / base.reach.scale, memory=MEMORY[model])
    return evolve(areal(model, 4, UNBOUND[model], alike), reach=reach, queue_size=IN_FLIGHT, flushes=True)


def interruption(base: Job, options: argparse.Namespace) -> list[dict[str, Any]]:
    """What is generated with and without interruption."""
    lines = []
    for model, (with_it, without) in INTERRUPTION.items():
        job, steps = generating(model, base, options.alike), min(4, options.steps)
        runs = [simulate(evolve(job, interruptible=on), steps, 2, UNBOUND[model]) for on in (True, False)]
        kept, waited = (outcome.generated for outcome in runs)
        gain, published = kept / waited - 1, with_it / without - 1
        lines.append(
            {"model": model, "published": published, "predicted": gain, "ratio_error": (1 + gain) / (1 + published) - 1,
             "gain_error": gain / published - 1, "generated": kept, "seconds_between_updates": runs[0].step_seconds}
        )  # fmt: skip
        print(f"interruption, {model}: {gain:+.1%}, published {published:+.1%}", flush=True)
    return lines


# --- scale -----------------------------------------------------------------------------------------


def spread(devices: int, concurrent: int, bound: int, batch: int = BATCH) -> Job:
    """A 14B model on H800s, lengths that spread tenfold, the same work a device at every scale."""
    job = Job(
        hardware=PROFILES["h800"],
        shape=KNOWN["qwen3-14b"],
        answers=Lengths("log-uniform", 800, 8000),
        trainers=1,
        engines=devices - 1,
        max_concurrent=concurrent,
        batch_size=batch * devices,
        longest=8000,
        max_staleness=bound,
    )
    return balanced(job)


def workload() -> int:
    """The concurrency at which 8 devices can be split best: the split is whole, the work is chosen to suit it."""

    def best(concurrent: int) -> float:
        job = spread(8, concurrent, 4)
        g, t = saturated(job.scenario(), concurrent, job.batch_size).seconds(job.engines)
        return min(g, t) / max(g, t)

    return max(range(4, 13), key=best)


def scale(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Utilization at staleness 4 and 0."""
    concurrent, lines = workload(), []
    for devices in options.devices:
        steps = max(2, min(options.steps, 8 * 64 // devices))
        found = {bound: simulate(spread(devices, concurrent, bound, options.batch), steps) for bound in (4, 0)}
        lines.append(_scaled(devices, found))
        print(", ".join(f"{key} {value}" for key, value in lines[-1].items()), flush=True)
    return lines


def _scaled(devices: int, found: Mapping[int, Outcome]) -> dict[str, Any]:
    job = found[4].job
    return {
        "devices": devices,
        "engines": job.engines,
        "trainers": job.trainers,
        "max_concurrent": job.max_concurrent,
        "utilization": round(found[4].utilization, 3),
        "best": round(found[4].best, 3),
        "synchronous": round(found[0].utilization, 3),
        "mean_lag": round(found[4].mean_lag, 2),
    }


# --- the table -------------------------------------------------------------------------------------


def rows(lines: list[dict[str, Any]]) -> list[list[Any]]:
    """With the keys as head."""
    return [list(lines[0]), *([*line.values()] for line in lines)]


def verdict(figures: Mapping[str, Any]) -> dict[str, bool]:
    """What is met, each by itself."""
    errors = [abs(line["error"]) for line in figures["staleness"]]
    interrupted = figures["interruption"]
    least, most = SYNCHRONOUS
    costs = [line["per_second"] for line in figures["controller"]]
    return {
        "throughput": max(errors) <= WITHIN,
        "interruption, ratio": all(abs(line["ratio_error"]) <= WITHIN for line in interrupted),
        "interruption, gain": all(abs(line["gain_error"]) <= WITHIN for line in interrupted),
        "utilization": all(line["utilization"] >= LEAST for line in figures["scale"]),
        "synchronous": all(least <= line["synchronous"] <= most for line in figures["scale"]),
        "controller": min(costs) >= RATE,
        "flat": max(costs) <= FLAT * min(costs),
    }


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, and at most 512 devices")
    parser.add_argument("--only", nargs="+", choices=["areal", "scale", "controller"], help="these parts alone")
    parser.add_argument("--steps", type=int, default=12, help="steady steps that are measured")
    parser.add_argument("--devices", type=int, nargs="+", default=list(DEVICES), help="scales")
    parser.add_argument("--batch", type=int, default=BATCH, help="trajectories of a batch for each device")
    parser.add_argument("--alike", type=float, default=0.0, help="share of the variance of log-lengths between prompts")
    parser.add_argument("--counted-as-areal", action="store_true", help="admit by AReaL's looser count")
    parser.add_argument("--nodes", type=int, default=16, help="nodes of the published table")
    options = parser.parse_args()
    if options.quick:
        options.steps, options.devices = 6, [count for count in options.devices if count < DEVICES[-1]]
    return options


def main() -> int:
    """Predict, compare, and print."""
    options = parse()
    parts = options.only or ["areal", "scale", "controller"]
    figures: dict[str, Any] = {"staleness": [], "interruption": [], "scale": [], "controller": []}
    if "areal" in parts:
        base, figures["staleness"] = staleness(options)
        figures["fitted_factor"] = base.reach.scale
        figures["interruption"] = interruption(base, options)
    if "scale" in parts:
        figures["scale"] = scale(options)
    if "controller" in parts:
        rounds = 1 if options.quick else ROUNDS
        figures["controller"] = [_line(devices, cost) for devices, cost in medians(options.devices, rounds)]
    for name in ("staleness", "interruption", "scale", "controller"):
        if figures[name]:
            print(f"\n{name}\n{table(rows(figures[name]))}")
    met = verdict_of(figures, parts)
    print("\nmet: " + ", ".join(f"{name} {'yes' if value else 'no'}" for name, value in met.items()))
    return finish("simulate", {**figures, "met": met}, "arXiv 2505.24298, and staleness 0", all(met.values()))


def verdict_of(figures: Mapping[str, Any], parts: list[str]) -> dict[str, bool]:
    """Of the parts that were asked for."""
    of = {
        "areal": ("throughput", "interruption, ratio", "interruption, gain"),
        "scale": ("utilization", "synchronous"),
        "controller": ("controller", "flat"),
    }
    wanted = [name for part in parts for name in of[part]]
    filled = {name: lines or _EMPTY[name] for name, lines in figures.items() if name in _EMPTY}
    found = verdict(filled)
    return {name: found[name] for name in wanted}


_EMPTY: dict[str, list[dict[str, Any]]] = {
    "staleness": [{"error": 0.0}],
    "interruption": [],
    "scale": [],
    "controller": [{"per_second": float(RATE)}],
}


def _line(devices: int, cost: Cost) -> dict[str, Any]:
    print(f"controller, {devices} devices: {cost.per_second:,.0f} trajectories/s", flush=True)
    return {
        "devices": devices,
        "per_second": round(cost.per_second),
        "microseconds": round(cost.own * 1e6, 1),
        "mocks_microseconds": round(cost.mocks * 1e6, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
