"""What asynchrony gains where answers and rewards take unequal time: utilization beside `max_staleness: 0`.

One engine process and one trainer process, a thread each, on a task whose answers' lengths spread 10x
and whose rewards come late. Utilization is `(G + T) / ((n_g + n_t) * wall)`: G and T are the seconds that
the run's generation and training take the same processes when neither waits for anything and both are
busy (`_saturation.py`, measured before and after the runs), so that computing anything twice, moving
weights and everything else that is neither counts against it. `best` is what the split allows: the
smaller of the two pools cannot be busy all the time. Wall-clock runs from the end of the steps left out
at the start to the last step before admission runs dry at the end.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _latency_task import LETTERS, Options, length, prompt
from _report import finish, table
from _run import Record, run, write_spec
from _saturation import Rate, Saturation, balance, saturate
from attrs import frozen

HERE = Path(__file__).parent
DEVICES = 2
TARGET = 0.90
TASK = Options()
FEWEST_ROWS, MOST_ROWS = 12, 48
MICRO_BATCH = 1024
"""Tokens whose activations stay in the cache: both pools share the bus to the memory behind it."""
FIRST_LETTER = 2
"""The token id of the alphabet's first letter in a `tiny` model: padding and the end come before."""


def spec(options: argparse.Namespace, max_staleness: int, steps: int) -> dict[str, Any]:
    """The experiment. Its model is wide enough that computing outweighs Python."""
    return {
        "name": "async-gain",
        "seed": options.seed,
        "plugins": [str(HERE / "_latency_task.py")],
        "model": {
            "type": "tiny",
            "hidden_size": 384,
            "layers": 2,
            "heads": 6,
            "kv_heads": 6,
            "intermediate": 1536,
            "alphabet": LETTERS,
            "dtype": "float32",
        },
        "executor": "local",
        "inference": {
            "type": "torch",
            "max_concurrent": options.rows,
            "sampling": {"max_new_tokens": TASK.longest},
            "torch": {"kv_on_update": "keep"},
        },
        "training": {
            "batch_size": options.batch,
            "learning_rate": 1e-5,
            "max_steps": steps,
            "micro_batch_tokens": MICRO_BATCH,
        },
        "objective": {"type": "grpo", "group_size": 4, "kl": 0.01, "reference": {}},
        "environments": [{"type": "latency"}],
        "pipeline": {"max_staleness": max_staleness},
        "evaluation": {"before": False, "after": False},
        "trackers": [],
    }


def ask(index: int, member: int) -> tuple[np.ndarray, int]:
    """What the task asks the engine, as token ids."""
    tokens = [FIRST_LETTER + LETTERS.index(letter) for letter in prompt(index)]
    return np.array(tokens, dtype=np.int32), length(TASK, index, member)


@frozen
class Window:
    """The steady part of a run, in sums over its `steps`; `lag` is a mean, `generated` and `trained` are tokens."""

    steps: int
    wall: float
    generated: float
    trained: float
    lag: float
    waited: float
    held: float

    def utilization(self, engine: float, trainer: float) -> float:
        """From the seconds a token costs each pool; what the buffer took in meanwhile does not count."""
        useful = min(self.generated, self.trained)
        return (useful * engine + self.trained * trainer) / (DEVICES * self.wall)


def window(record: Record, first: int, last: int) -> Window:
    """The steps after `first` up to `last`."""
    metrics, timings = record.metrics[first:last], record.timings[first:last]
    return Window(
        steps=last - first,
        wall=record.timings[last - 1]["elapsed"] - record.timings[first - 1]["elapsed"],
        generated=record.metrics[last - 1]["tokens/generated"] - record.metrics[first - 1]["tokens/generated"],
        trained=record.metrics[last - 1]["tokens/trained"] - record.metrics[first - 1]["tokens/trained"],
        lag=float(np.mean([line["lag/mean"] for line in metrics])),
        waited=sum(line["wait"] for line in timings),
        held=sum(line["held"] for line in timings),
    )


def measure(options: argparse.Namespace, max_staleness: int, work: Path) -> Window:
    """Run the pipeline; what happened in its steady part."""
    steps = options.left_out + options.steps + max_staleness + 1
    name = f"staleness-{max_staleness}"
    record = run(write_spec(spec(options, max_staleness, steps), work / f"{name}.yaml"), work / name)
    steady = window(record, options.left_out, options.left_out + options.steps)
    print(f"max_staleness {max_staleness}: {steady.steps} steps in {steady.wall:.1f} s", flush=True)
    return steady


def calibrate(options: argparse.Namespace, work: Path, name: str) -> Saturation:
    """Both pools without the pipeline."""
    path = write_spec(spec(options, options.staleness, 1), work / f"{name}.yaml")
    batches = 2 if options.quick else 4  # a token of a batch of short answers costs more
    return saturate(path, work / name, ask, batches, options.seconds)


def balanced(options: argparse.Namespace, work: Path) -> int:
    """Rows for which generation and training take equally long: one device each is then the best split."""
    largest = argparse.Namespace(**{**vars(options), "rows": MOST_ROWS})
    path = write_spec(spec(largest, options.staleness, 1), work / "balance.yaml")
    return balance(path, work / "balance", ask, FEWEST_ROWS, options.seconds / 2)


WAYS = ("engine_alone", "trainer_alone", "engine", "trainer")


def costs(found: Sequence[Saturation]) -> dict[str, float]:
    """Seconds a token of each pool, alone and beside the other, over several measurements."""
    return {way: cost([getattr(saturation, way) for saturation in found]) for way in WAYS}


def cost(rates: Sequence[Rate]) -> float:
    """Seconds a token."""
    return sum(rate.seconds for rate in rates) / sum(rate.tokens for rate in rates)


def row(name: str, steady: Window, found: Mapping[str, float]) -> list[Any]:
    """A run's line of the table."""
    best = (found["engine"] + found["trainer"]) / (DEVICES * max(found["engine"], found["trainer"]))
    return [
        name,
        steady.utilization(found["engine"], found["trainer"]),
        best,
        steady.utilization(found["engine_alone"], found["trainer_alone"]),
        steady.steps / steady.wall,
        steady.trained / steady.wall,
        steady.generated / steady.trained,
        steady.lag,
        steady.waited / steady.wall,
        steady.held / steady.wall,
    ]


HEAD = (
    *("", "utilization", "best", "(solo rates)", "steps/s", "trained tokens/s", "generated/trained"),
    *("mean lag", "trainer waits", "admission held"),
)


def show(found: Sequence[Saturation], windows: Mapping[int, Window]) -> None:
    """Print what was measured."""
    print("seconds per 1000 tokens, kept full")
    lines = {"before the runs": costs(found[:1]), "after them": costs(found[1:]), "both": costs(found)}
    print(table([["", *WAYS], *([when, *(1e3 * line[way] for way in WAYS)] for when, line in lines.items())]))
    print(table([HEAD, *(row(f"max_staleness {k}", steady, costs(found)) for k, steady in windows.items())]))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer steps: under five minutes on two quiet cores")
    parser.add_argument("--steps", type=int, help="steps that are measured")
    parser.add_argument("--left-out", type=int, help="steps before them")
    parser.add_argument("--seconds", type=float, help="of each saturation measurement")
    parser.add_argument("--staleness", type=int, default=4, help="the asynchronous run's max_staleness")
    parser.add_argument(
        "--rows", type=int, help="answers that the engine works on at once; those that balance both pools"
    )
    parser.add_argument("--batch", type=int, help="trajectories a step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.steps = options.steps or (4 if options.quick else 20)
    options.left_out = options.left_out or (2 if options.quick else 6)
    options.batch = options.batch or (64 if options.quick else 128)
    options.seconds = options.seconds or (6.0 if options.quick else 20.0)
    return options


def main() -> int:
    """Calibrate, run both ways, calibrate again, and compare."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        options.rows = options.rows or balanced(options, work)
        print(f"{options.rows} rows, {options.batch} trajectories a step", flush=True)
        found = [calibrate(options, work, "before")]
        windows = {staleness: measure(options, staleness, work) for staleness in (options.staleness, 0)}
        found.append(calibrate(options, work, "after"))
    show(found, windows)
    cost_now = costs(found)
    synchronous, asynchronous = windows[0], windows[options.staleness]
    utilization = {
        name: steady.utilization(cost_now["engine"], cost_now["trainer"])
        for name, steady in (("asynchronous", asynchronous), ("synchronous", synchronous))
    }
    figures = {
        "utilization": utilization,
        "speed_ratio": (asynchronous.trained / asynchronous.wall) / (synchronous.trained / synchronous.wall),
        "mean_lag": asynchronous.lag,
        "milliseconds_a_token": {way: 1e3 * seconds for way, seconds in cost_now.items()},
        "steps": options.steps,
        "rows": options.rows,
        "batch": options.batch,
        "target": TARGET,
    }
    return finish("async_gain", figures, "the same run with max_staleness 0", utilization["asynchronous"] >= TARGET)


if __name__ == "__main__":
    sys.exit(main())
