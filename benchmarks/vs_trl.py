"""Completions per second and time to a reward of 0.9, side by side with TRL 1.16 GRPO, in interleaved pairs.

TRL runs in an environment of its own, made on first use. Both sides start from the same model directory
and see the same task with the same batch, group, lengths, learning rate and loss: TRL clips the ratio to the
policy that drew a token, which is `decoupled: false` here, and under staleness is what keeps a step small. TRL has
both cores for itself, we give one to the engine and one to the trainer; the engine takes new weights every other step,
so that it answers for two batches at once. Start-up is left out on both sides. `--smollm2`
compares on SmolLM2-135M-Instruct instead of the tiny Qwen2: the same task, put to it as a chat.
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
ANSWER = 8
"""Letters of the right answer, unless said."""


def trl_python() -> str:
    """The interpreter of TRL's environment; installs it once."""
    python = CACHE / "bin" / "python"
    if not (CACHE / "ready").exists():
        print(f"installing TRL 1.16 into {CACHE}", flush=True)
        venv.create(CACHE, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "trl==1.16.0", "torch==2.13.0"], check=True)
        (CACHE / "ready").touch()
    return str(python)


def tiny_model(work: Path, seed: int = 0) -> Path:
    """A Qwen2 of 75,008 parameters (hidden 64, 2 layers, 11 tokens) with a tokenizer of nine letters.

    How many steps the task takes depends much on the weights at the start, so that every pair has its own.
    """
    from _copy_task import LETTERS

    from areal_plugins.builtin.models import TinyOptions
    from areal_plugins.builtin.models.tiny import TinySource
    from areal_plugins.protocols import ModelContext

    options = TinyOptions(hidden_size=64, layers=2, heads=4, kv_heads=2, alphabet=LETTERS, max_positions=128)
    return TinySource(options, ModelContext(cache=work, work=work, seed=seed)).materialize()


def run_trl(case: dict[str, Any], seed: int, work: Path) -> list[tuple[float, float]]:
    """Of each step: seconds since training began, mean reward."""
    out = work / "trl.jsonl"
    arguments = {key: case[key] for key in ("model", "tasks", "length", "letters", "batch", "group", "steps", "lr")}
    flags = [part for key, value in arguments.items() for part in (f"--{key}", str(value))]
    command = [trl_python(), str(HERE / "_trl_grpo.py"), *flags, "--out", str(out), "--seed", str(seed)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in out.read_bytes().splitlines()]
    return [(line["seconds"], line["reward"]) for line in lines]


def spec(case: dict[str, Any]) -> dict[str, Any]:
    """Our side as a spec."""
    return {
        "name": "vs-trl",
        "plugins": [str(HERE / "_copy_task.py")],
        "model": {"type": "hf", "path": str(case["model"]), "dtype": "float32"},
        "executor": "local",
        "inference": {
            "type": "torch",
            "max_concurrent": case["every"] * case["batch"],
            "sampling": {"temperature": 1.0, "max_new_tokens": case["length"]},
            "torch": {"kv_on_update": "keep"},
        },
        "training": {
            "batch_size": case["batch"],
            "learning_rate": case["lr"],
            "max_steps": case["steps"],
            "grad_clip": 1.0,
            "optimizer": {"type": "adamw", "weight_decay": 0.0, "betas": [0.9, 0.999]},
        },
        "objective": {"type": "dapo", "group_size": case["group"], **case["objective"]},
        "environments": [{"type": "copy", "chat": case["chat"], "letters": case["letters"]}],
        "weights": {"every": case["every"]},
        "pipeline": {"max_staleness": case["staleness"], "interruptible": True},
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
        [sys.executable, "-m", "areal_plugins", "run", str(path), "--run-dir", str(run), *case["overrides"]],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_bytes().splitlines()]
    timings = [json.loads(line) for line in (run / "timings.jsonl").read_bytes().splitlines()]
    began = timings[0]["elapsed"] - timings[0]["wall"]
    return [(t["elapsed"] - began, m["reward"]) for m, t in zip(metrics, timings, strict=True)]


def speed(steps: list[tuple[float, float]], batch: int) -> float:
    """Completions a second, the first `LEFT_OUT` steps left out."""
    return (len(steps) - LEFT_OUT) * batch / (steps[-1][0] - steps[LEFT_OUT - 1][0])


def time_to_target(steps: list[tuple[float, float]]) -> float | None:
    """Seconds until the mean reward of `WINDOW` steps reaches the target; None when it never does."""
    rewards = [reward for _, reward in steps]
    for end in range(WINDOW, len(steps) + 1):
        if sum(rewards[end - WINDOW : end]) / WINDOW >= TARGET_REWARD:
            return steps[end - 1][0]
    return None


def tiny_case(work: Path, steps: int | None, seed: int = 0) -> dict[str, Any]:
    """The copy task on the tiny Qwen2."""
    return {"model": tiny_model(work, seed), "chat": False, "batch": 64, "steps": steps or 250, "lr": 3e-3}


def smollm2_case(work: Path, steps: int | None, seed: int = 0) -> dict[str, Any]:
    """The copy task on SmolLM2-135M-Instruct."""
    return {"model": smollm2(), "chat": True, "batch": 16, "steps": steps or 20, "lr": 2e-5}


def smollm2() -> Path:
    """SmolLM2's directory, from the plugin `smollm2` (`pip install ./plugins/smollm2`)."""
    from areal_plugin_smollm2 import Smollm2Options
    from areal_plugin_smollm2.source import smollm2 as source

    from areal_plugins.protocols import ModelContext

    work = Path(tempfile.gettempdir())
    return source(Smollm2Options(), ModelContext(cache=CACHE.parent / "models", work=work, seed=0)).materialize()


def completed(case: dict[str, Any], work: Path, letters: int = ANSWER) -> dict[str, Any]:
    """`case` with what both have in common, and TRL's prompts as a file."""
    from _copy_task import ask

    tasks = work / "tasks.jsonl"
    tasks.write_text("".join(json.dumps({"prompt": ask(i, case["chat"], letters)}) + "\n" for i in range(4096)))
    shared = {"tasks": tasks, "letters": letters, "group": 8, "staleness": 4, "every": 2}
    shared["length"] = letters + letters // 2 if case["chat"] else letters  # a chat model ends its answer itself
    objective = {"decoupled": False, "dynamic_sampling": False, "clip_high": 0.2, "equal_groups": "count"}
    return {**case, **shared, "objective": objective}


def pair(case: dict[str, Any], seed: int, work: Path) -> list[Any]:
    """One row of the table."""
    trl, ours = run_trl(case, seed, work), run_ours(case, seed, work)
    rates = speed(trl, case["batch"]), speed(ours, case["batch"])
    waits = time_to_target(trl), time_to_target(ours)
    return [seed, *rates, rates[1] / rates[0], *waits, share(*waits)]


def share(theirs: float | None, ours: float | None) -> float | None:
    """Our time as a share of theirs; 0 where they never arrive, None where we do not."""
    if ours is None:
        return None
    return 0.0 if theirs is None else ours / theirs


def main() -> int:
    """Run the pairs and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two pairs")
    parser.add_argument("--smollm2", action="store_true", help="on SmolLM2-135M-Instruct; few steps, so speed alone")
    parser.add_argument("--pairs", type=int, default=None, help="five unless said")
    parser.add_argument("--steps", type=int, default=None, help="250, or 20 on SmolLM2")
    parser.add_argument("--letters", type=int, default=ANSWER, help="of the right answer")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE of our spec, as `run` takes it")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 5)
    trl_python()
    rows: list[list[Any]] = [["seed", "TRL /s", "ours /s", "ratio", "TRL s to 0.9", "ours s to 0.9", "share"]]
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(pairs):
            work = Path(folder) / f"pair-{seed}"
            work.mkdir()
            case = (smollm2_case if options.smollm2 else tiny_case)(work, options.steps, seed)
            overrides = [word for change in options.set for word in ("--set", change)]
            rows.append(pair({**completed(case, work, options.letters), "overrides": overrides}, seed, work))
            print(table([rows[0], rows[-1]]), flush=True)
    print(table(rows))
    ratio = median([row[3] for row in rows[1:]])
    figures: dict[str, Any] = {"completions_ratio": ratio, "pairs": pairs}
    if not options.smollm2:
        figures["time_to_reward_share"] = middle([row[6] for row in rows[1:]])
    wait = figures.get("time_to_reward_share", 0.0)
    return finish("vs_trl", figures, "TRL 1.16.0 GRPOTrainer", ratio >= 2 and wait is not None and wait <= 0.5)


def middle(shares: list[float | None]) -> float | None:
    """Their median, where None is the longest."""
    return sorted(shares, key=lambda share: float("inf") if share is None else share)[len(shares) // 2]


if __name__ == "__main__":
    sys.exit(main())
