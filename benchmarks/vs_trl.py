"""Completions per second and time to a reward of 0.9, side by side with TRL 1.16 GRPO, in interleaved pairs.

TRL runs in an environment of its own, made on first use. Both sides start from the same model directory
and see the same task with the same batch, group, lengths, learning rate and loss. `--smollm2` compares on
SmolLM2-135M-Instruct instead of the tiny Qwen2.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

from _report import finish, median, table

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "areal-plugins" / "trl-1.16"
TARGET_REWARD = 0.9
WINDOW = 5
LEFT_OUT = 10


def trl_python() -> str:
    """The interpreter of TRL's environment; installs it once."""
    python = CACHE / "bin" / "python"
    if not (CACHE / "ready").exists():
        print(f"installing TRL 1.16 into {CACHE}", flush=True)
        venv.create(CACHE, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "trl==1.16.0", "torch==2.13.0"], check=True)
        (CACHE / "ready").touch()
    return str(python)


def tiny_model(work: Path) -> Path:
    """A Qwen2 of 75,008 parameters (hidden 64, 2 layers, 11 tokens) with a tokenizer of nine letters."""
    from _copy_task import LETTERS

    from areal_plugins.builtin.models import TinyOptions
    from areal_plugins.builtin.models.tiny import TinySource
    from areal_plugins.protocols import ModelContext

    options = TinyOptions(hidden_size=64, layers=2, heads=4, kv_heads=2, alphabet=LETTERS, max_positions=128)
    return TinySource(options, ModelContext(cache=work, work=work, seed=0)).materialize()


def run_trl(case: dict[str, Any], seed: int, work: Path) -> list[tuple[float, float]]:
    """(seconds since training began, mean reward) of each step."""
    out = work / "trl.jsonl"
    arguments = {key: case[key] for key in ("model", "tasks", "reward", "length", "batch", "group", "steps", "lr")}
    flags = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    command = [trl_python(), str(HERE / "_trl_grpo.py"), *flags, "--out", str(out), "--seed", str(seed)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [(line["seconds"], line["reward"]) for line in lines]


def spec(case: dict[str, Any]) -> dict[str, Any]:
    """Our side as a spec."""
    return {
        "name": "vs-trl",
        "plugins": [str(HERE / case["plugin"])],
        "model": {"type": "hf", "path": str(case["model"]), "dtype": "float32"},
        "executor": "local",
        "inference": {
            "type": "torch",
            "max_concurrent": case["batch"],
            "sampling": {"temperature": 1.0, "max_new_tokens": case["length"]},
        },
        "training": {
            "batch_size": case["batch"],
            "learning_rate": case["lr"],
            "max_steps": case["steps"],
            "grad_clip": 1.0,
            "optimizer": {"type": "adamw", "weight_decay": 0.0, "betas": [0.9, 0.999]},
        },
        "objective": {"type": "dapo", "group_size": case["group"], **case["objective"]},
        "environments": [case["environment"]],
        "pipeline": {"max_staleness": case["staleness"]},
        "evaluation": {"before": False, "after": False},
        "trackers": [],
    }


def run_ours(case: dict[str, Any], seed: int, work: Path) -> list[tuple[float, float]]:
    """The same figures from the run directory: reward from `metrics.jsonl`, clock from `timings.jsonl`."""
    from ruamel.yaml import YAML

    path = work / "spec.yaml"
    YAML(typ="safe").dump({**spec(case), "seed": seed}, path)
    run = work / "run"
    subprocess.run(
        [sys.executable, "-m", "areal_plugins", "run", str(path), "--run-dir", str(run)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_text().splitlines()]
    return [(t["elapsed"], m["reward"]) for m, t in zip(metrics, timings, strict=True)]


def speed(steps: list[tuple[float, float]], batch: int) -> float:
    """Completions a second, the first `LEFT_OUT` steps left out."""
    return (len(steps) - LEFT_OUT) * batch / (steps[-1][0] - steps[LEFT_OUT - 1][0])


def time_to_target(steps: list[tuple[float, float]]) -> float:
    """Seconds until the mean reward of `WINDOW` steps reaches the target; infinite when it never does."""
    rewards = [reward for _, reward in steps]
    for end in range(WINDOW, len(steps) + 1):
        if sum(rewards[end - WINDOW : end]) / WINDOW >= TARGET_REWARD:
            return steps[end - 1][0]
    return float("inf")


def tiny_case(work: Path, steps: int) -> dict[str, Any]:
    """The copy task on the tiny Qwen2."""
    from _copy_task import LENGTH, prompt

    (work / "tasks.jsonl").write_text("".join(json.dumps({"prompt": prompt(i)}) + "\n" for i in range(4096)))
    return {
        "model": tiny_model(work),
        "tasks": work / "tasks.jsonl",
        "reward": "copy",
        "plugin": "_copy_task.py",
        "environment": {"type": "copy"},
        "length": LENGTH,
        "batch": 64,
        "group": 8,
        "steps": steps,
        "lr": 3e-3,
        "staleness": 1,
        "objective": {"dynamic_sampling": False, "clip_high": 0.2},
    }


def main() -> int:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two pairs, fewer steps")
    parser.add_argument("--pairs", type=int, default=None)
    parser.add_argument("--steps", type=int, default=None)
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 5)
    steps = options.steps or 250
    trl_python()
    rows: list[list[Any]] = [["pair", "TRL /s", "ours /s", "ratio", "TRL s to 0.9", "ours s to 0.9", "ratio"]]
    with tempfile.TemporaryDirectory() as folder:
        case = tiny_case(Path(folder), steps)
        for pair in range(pairs):
            work = Path(folder) / f"pair-{pair}"
            work.mkdir()
            trl, ours = run_trl(case, pair, work), run_ours(case, pair, work)
            rates, waits = (speed(trl, 64), speed(ours, 64)), (time_to_target(trl), time_to_target(ours))
            rows.append([pair, *rates, rates[1] / rates[0], *waits, waits[1] / waits[0]])
            print(table([rows[0], rows[-1]]), flush=True)
    print(table(rows))
    ratio, wait = median([row[3] for row in rows[1:]]), median([row[6] for row in rows[1:]])
    figures = {
        "completions_ratio": ratio,
        "time_to_reward_ratio": wait,
        "pairs": pairs,
    }
    return finish("vs_trl", figures, "TRL 1.16.0 GRPOTrainer", ratio >= 2 and wait <= 0.5)


if __name__ == "__main__":
    sys.exit(main())
