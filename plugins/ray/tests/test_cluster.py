"""Runs of the real pipeline, and the rules for executors, on a cluster of two nodes on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from areal_plugin_ray import RayOptions
from areal_plugin_ray.executor import make

from areal_plugins.protocols import ExecutorContext, Place, WorkerSpec
from areal_plugins.testing.conformance import ExecutorConformance
from areal_plugins.testing.conformance.errands import ROLE
from areal_plugins.workers import WorkerLost

ROOT = Path(__file__).parents[3]
PATIENCE = 240.0
NODE = {"num_cpus": 4, "object_store_memory": 80_000_000}


APART = ("executor.ray.strategy=SPREAD", "executor.ray.train_resource=head")
"""The trainer on the head; engine and rollout worker spread over both nodes."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Its head has the resource `head`, its other node `other`; this process is one of its drivers."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={**NODE, "resources": {"head": 2}, "include_dashboard": False}
    )
    try:
        cluster.other = cluster.add_node(**NODE, resources={"other": 2})
        os.environ["RAY_ADDRESS"] = cluster.address
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        yield cluster
    finally:
        os.environ.pop("RAY_ADDRESS", None)
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def idle(cluster) -> Iterator[Callable[[], bool]]:
    """Whether nobody holds anything of the cluster's; checked at the end of the test."""
    import ray

    def gone() -> bool:
        free, there = ray.available_resources(), ray.cluster_resources()
        return all(free.get(name, 0) == amount for name, amount in there.items() if name in ("CPU", "head", "other"))

    yield gone
    assert until(gone), f"{ray.available_resources()} of {ray.cluster_resources()} are free"


def until(condition: Callable[[], bool], patience: float = 30.0) -> bool:
    """Whether it becomes true in time; what other processes do tells nobody here."""
    end = time.monotonic() + patience
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.2)
    return found


@pytest.fixture
def launch(cluster, tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts `areal-plugins run` of the quickstart, shortened, on the cluster; in `tmp_path / "run"`."""
    started = []

    def start(*overrides: str) -> subprocess.Popen[str]:
        words = ["run", str(ROOT / "specs/quickstart.yaml"), "--run-dir", str(tmp_path / "run")]
        for override in ("executor.type=ray", *overrides):
            words += ["--set", override]
        process = subprocess.Popen(
            [sys.executable, "-m", "areal_plugins", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


def short(imitate: int, reinforce: int) -> str:
    """The quickstart's stages with fewer steps."""
    first = (
        f"{{name: imitate, objective: sft, training: {{max_steps: {imitate}, batch_size: 64, learning_rate: 4.0e-3}}}}"
    )
    return f"stages=[{first}, {{name: reinforce, training: {{max_steps: {reinforce}}}}}]"


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file of the run directory, which may not be there yet."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(True) if line.endswith("\n")]


@pytest.mark.usefixtures("cluster")
class TestRules(ExecutorConformance):
    @pytest.fixture
    def component(self):
        return "executor/ray"


def test_ranks_meet_on_the_machine_of_rank_0_and_say_how_they_end(idle, tmp_path):
    names = [WorkerSpec(f"trainer-{rank}", ROLE, Place(rank, 2, rendezvous="file:///life-0")) for rank in range(2)]

    async def meet():
        executor = make(RayOptions(strategy="SPREAD"), ExecutorContext("run", tmp_path / "logs", workers=tuple(names)))
        try:
            ranks = await asyncio.gather(*map(executor.start, names))
            told = [[await rank.call("variable", name) for name in ("MASTER_PORT", "RANK")] for rank in ranks]
            with pytest.raises(WorkerLost, match="exit code 3"):
                await ranks[1].call("die")
            return [rank.spec.place.rendezvous for rank in ranks], told
        finally:
            await executor.close()

    rendezvous, told = asyncio.run(asyncio.wait_for(meet(), PATIENCE))
    assert len(set(rendezvous)) == 1
    assert rendezvous[0].startswith("tcp://")
    port = rendezvous[0].rpartition(":")[2]
    assert told == [[port, "0"], [port, "1"]]


def test_a_worker_that_joined_gives_its_room_back_when_it_is_stopped(idle, tmp_path):
    first, joins = (WorkerSpec(name, ROLE, Place(), resources={"cpu": 1}) for name in ("a", "b"))

    async def leave() -> bool:
        executor = make(RayOptions(), ExecutorContext("run", tmp_path / "logs", workers=(first,)))
        try:
            await executor.start(first)
            joined = await executor.start(joins)
            joined.kill()
            await joined.lost()
            joined = await executor.start(joins)
            await joined.stop(10)
            return await asyncio.to_thread(until, lambda: free() == 7)
        finally:
            await executor.close()

    assert asyncio.run(asyncio.wait_for(leave(), PATIENCE)), f"{free():g} of 8 cores are free"


def free() -> float:
    """The cores of the two nodes that nobody has reserved."""
    import ray

    return ray.available_resources().get("CPU", 0)


def test_a_run_on_two_nodes_learns_and_leaves_nothing(launch, idle, tmp_path):
    run = launch(*APART, "executor.ray.infer_resource=other", short(200, 10), "evaluation.samples=200")
    said, _ = run.communicate(timeout=PATIENCE)
    assert run.returncode == 0, said
    assert "raylet" not in said
    assert "0.000 -> 0." in said
    after = float(said.split("0.000 -> ")[1].split()[0])
    assert after > 0.2, said
    logs = {path.name for path in (tmp_path / "run/logs").iterdir()}
    assert {"trainer.log", "engine-0.log", "rollout-0.log", "ray.log", "controller.log"} <= logs
    assert "serves at tcp:" in (tmp_path / "run/logs/engine-0.log").read_text()
    spec = (tmp_path / "run/spec.yaml").read_text()
    assert "type: disk" in spec, "a transport that reaches another machine"


def test_a_lost_node_costs_less_than_a_minute(launch, idle, cluster, tmp_path):
    run = launch(*APART, short(30, 40), "evaluation.samples=50")
    try:
        steps = tmp_path / "run/metrics.jsonl"
        assert until(lambda: any(line["stage"] == "reinforce" for line in lines(steps)), PATIENCE)
        cluster.remove_node(cluster.other, allow_graceful=False)
        said, _ = run.communicate(timeout=PATIENCE)
    finally:
        cluster.other = cluster.add_node(**NODE, resources={"other": 2})
    assert run.returncode == 0, said
    events = lines(tmp_path / "run/events.jsonl")
    lost = [event for event in events if event["kind"] == "worker-lost"]
    back = [event for event in events if event["kind"] == "worker-restarted"]
    assert {event["data"]["worker"] for event in lost} <= {"engine-0", "rollout-0"}
    assert len(lost) == len(back) > 0
    assert back[-1]["seconds"] - lost[0]["seconds"] < 60


def test_what_the_cluster_can_never_hold_is_said_within_seconds(launch, idle, tmp_path):
    run = launch("executor.ray.rollout_resource=unicorn")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 2, said
    assert "1 unicorn are needed, and the cluster has 0" in said
    assert "head  other" in said, "the table of machines"


def test_shared_memory_does_not_reach_another_node(launch):
    run = launch("weights.type=shm")
    said, _ = run.communicate(timeout=60)
    assert run.returncode == 2, said
    assert "transport shm stays on one machine, and trainer and engine may be on two" in said


def test_a_controller_that_is_killed_leaves_no_worker(launch, idle, tmp_path):
    run = launch(short(3000, 10), "evaluation.before=false")
    steps = tmp_path / "run/metrics.jsonl"
    assert until(lambda: len(lines(steps)) > 5, PATIENCE)
    assert not idle()
    os.kill(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    assert until(idle)
    assert until(lambda: not workers_of(tmp_path)), workers_of(tmp_path)


def workers_of(folder: Path) -> list[str]:
    """Processes that have a file of the run open as their output."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/fd/1"):
        try:
            if str(folder) in str(entry.readlink()):
                found.append(entry.parts[2])
        except OSError:  # it has ended, or is somebody else's
            continue
    return found
