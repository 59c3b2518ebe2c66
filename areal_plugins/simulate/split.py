"""Which devices should generate and which train."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from areal_core.errors import InputError
from areal_plugins.simulate.outcome import Outcome, simulate
from areal_plugins.simulate.plan import Job
from areal_plugins.simulate.saturation import saturated

LOOKS = 6
"""Splits that are simulated at most."""


def balanced(job: Job) -> Job:
    """The same devices, split so that both pools take the same time for a token at saturated throughput.

    Raises:
        InputError: there are too few devices for two pools.

    """
    return min(splits(job), key=_slower)


def _slower(job: Job) -> float:
    """Seconds a token of the pool that takes longer."""
    costs = saturated_once(job)
    return max(costs[0] / job.engines, costs[1] / job.trainers)


def splits(job: Job) -> Iterator[Job]:
    """All ways to use the devices; those that an engine's size leaves over train."""
    most = (job.devices - 1) // job.engine_devices
    if most < 1:
        devices = "1 device" if job.devices == 1 else f"{job.devices} devices"
        problem = f"{devices} cannot hold an engine of {job.engine_devices} and a trainer"
        smaller = ", or a smaller resources.infer.parallel" if job.engine_devices > 1 else ""
        raise InputError("--devices", problem, f"give {job.engine_devices + 1} or more{smaller}")
    yield from (job.split(engines) for engines in range(1, most + 1))


_SATURATED: dict[Job, tuple[float, float]] = {}


def saturated_once(job: Job) -> tuple[float, float]:
    """Device-seconds a token of one engine and of one training device; they do not depend on the split."""
    key = evolve(job, engines=1, trainers=1)
    if key not in _SATURATED:
        one = saturated(key.scenario(), job.max_concurrent, job.batch_size)
        _SATURATED[key] = (1 / one.engine, one.trainer)
    return _SATURATED[key]


def search(job: Job, steps: int) -> list[Outcome]:
    """Simulated splits, in order of engines: the balanced one, and from there uphill in throughput of `steps` steps."""
    ways = {way.engines: way for way in splits(job)}
    middle = balanced(job).engines
    stride = max(1, len(ways) // 16)
    found = {middle: simulate(ways[middle], steps)}
    for direction in (-stride, stride):
        place = middle + direction
        while place in ways and len(found) < LOOKS:
            found[place] = simulate(ways[place], steps)
            if found[place].tokens <= found[place - direction].tokens:
                break
            place += direction
    return [found[engines] for engines in sorted(found)]


def best(outcomes: list[Outcome]) -> Outcome:
    """The one that trains most tokens a second."""
    return max(outcomes, key=lambda outcome: outcome.tokens)
