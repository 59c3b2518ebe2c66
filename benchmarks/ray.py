"""The quickstart on a Ray cluster of two nodes, as `local` does it, and with a node lost in the middle.

Both nodes run on this machine, and count as two: weights go through files, as between machines. The node
that is killed, raylet and all, is the one without the cluster's head. The trainer lives there, and perhaps
others; they must come back on the head. What that costs is the time of the run above that of the same run
with no node lost.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]  # it is named ray

ROOT = Path(__file__).parents[1]
SPEC = ROOT / "specs" / "quickstart.yaml"
NODE = {"num_cpus": 4, "object_store_memory": 80_000_000}
HEAD = {"include_dashboard": False}
LIMIT = 60.0
"""Seconds that losing a node may cost."""
NOISE = 0.08
"""Difference of accuracies on 400 held-out tasks that says nothing: 2.3 standard errors of a difference, at most."""
QUICK = (
    "stages=[{name: imitate, objective: sft, training: {max_steps: 150, batch_size: 64, learning_rate: 4.0e-3}},"
    " {name: reinforce, training: {max_steps: 30}}]"
)


def main() -> int:
    """Run three times; print a table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a sixth of the steps")
    overrides = [QUICK] if parser.parse_args().quick else []
    with tempfile.TemporaryDirectory() as folder:
        runs = {"local": run(Path(folder) / "local", overrides)}
        with cluster() as (address, lose):
            overrides += ["executor.type=ray", "executor.ray.strategy=SPREAD", "executor.ray.train_resource=train"]
            environment = {**os.environ, "RAY_ADDRESS": address}
            runs["ray"] = run(Path(folder) / "ray", overrides, environment)
            runs["ray, node lost"] = run(Path(folder) / "lost", overrides, environment, lose)
    return report(runs)


def run(
    folder: Path,
    overrides: list[str],
    environment: dict[str, str] | None = None,
    strike: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """What a run came to; `strike` is called once, when a third of the second stage is done."""
    words = [sys.executable, "-m", "areal_plugins", "run", str(SPEC), "--run-dir", str(folder)]
    for override in overrides:
        words += ["--set", override]
    said = folder.with_suffix(".txt")
    with said.open("w") as output:
        process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
        while process.poll() is None:
            time.sleep(0.2)
            if strike is not None and sum(line["stage"] == "reinforce" for line in lines(folder, "metrics")) > 9:
                strike()
                strike = None
    if process.returncode:
        raise RuntimeError(f"{' '.join(words)} ended with {process.returncode}:\n{said.read_text()[-3000:]}")
    events = lines(folder, "events")
    return {
        "accuracy": lines(folder, "evaluations")[-1]["environments"]["backwards"]["accuracy"],
        "steps": len(lines(folder, "metrics")),
        "seconds": lines(folder, "timings")[-1]["elapsed"],
        "lost": [event["data"]["worker"] for event in events if event["kind"] == "worker-lost"],
    }


def report(runs: dict[str, dict[str, Any]]) -> int:
    """Print what the runs came to."""
    sys.path.insert(0, str(Path(__file__).parent))
    from _report import finish, table

    head = ["executor", "steps", "accuracy", "seconds", "workers lost"]
    print(
        table(
            [head, *([name, r["steps"], r["accuracy"], r["seconds"], " ".join(r["lost"])] for name, r in runs.items())]
        )
    )
    local, whole, struck = runs.values()
    cost = struck["seconds"] - whole["seconds"]
    apart = max(abs(r["accuracy"] - local["accuracy"]) for r in (whole, struck))
    steps = {r["steps"] for r in runs.values()}
    print(f"\nlosing a node cost {cost:.1f} s; accuracies are {apart:.3f} apart at most")
    figures = {"runs": runs, "node_lost_cost_seconds": cost, "accuracy_apart": apart}
    ok = cost < LIMIT and apart < NOISE and bool(struck["lost"]) and not whole["lost"] and len(steps) == 1
    return finish("ray", figures, "the same spec on the executor local", ok)


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """The whole lines of a file of the run directory, which may not be there yet."""
    path = folder / f"{name}.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


@contextmanager
def cluster() -> Iterator[tuple[str, Callable[[], None]]]:
    """Its address, and what kills the node that trains."""
    import ray
    from ray.cluster_utils import Cluster
    from ray.util.placement_group import placement_group

    trains = {**NODE, "resources": {"train": 1}}
    both = Cluster(initialize_head=True, head_node_args={**trains, "resources": {"train": 1, "head": 1}, **HEAD})
    try:
        doomed = both.add_node(**trains)
        ray.init(address=both.address, log_to_driver=False, logging_level="ERROR")
        head = placement_group([{"train": 1, "head": 1}])  # so that the trainer begins on the other node
        ray.get(head.ready())

        def lose() -> None:
            ray.shutdown()  # which gives up the head's place
            both.remove_node(doomed, allow_graceful=False)

        yield both.address, lose
    finally:
        ray.shutdown()
        both.shutdown()


if __name__ == "__main__":
    sys.exit(main())
