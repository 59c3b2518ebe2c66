"""What was drawn so far of the groups under way: a checkpoint holds it, so that they go on from there."""

from __future__ import annotations

import asyncio

from attrs import evolve

from areal_core.data import TrajectoryGroup, WeightVersion
from areal_core.errors import RemoteError, WorkerLost
from areal_core.pipeline.checkpoint import PipelineState
from areal_core.pipeline.events import Events
from areal_core.pipeline.pool import Pool, Seat
from areal_core.workers.partial import until

PATIENCE = 3.0
"""Seconds that a rollout worker has to answer."""


async def reported(state: PipelineState, rollouts: Pool, events: Events) -> PipelineState:
    """`state` with what the rollout workers say of its groups under way; the groups of one that is silent begin anew.

    What was drawn by later versions, while they were asked, is left out: those weights may never be again.
    """
    sequences = [sequence for sequence, _ in state.under_way]
    if not sequences:
        return state
    version = WeightVersion(state.incarnation, state.step)
    answers = await asyncio.gather(*(_ask(seat, sequences, events) for seat in rollouts.ready))
    furthest: dict[int, TrajectoryGroup] = {}
    for group in (until(group, version.code) for answer in answers for group in answer):
        if _drawn(group) > (_drawn(furthest[group.sequence]) if group.sequence in furthest else 0):
            furthest[group.sequence] = group
    return evolve(state, partial=tuple(furthest[sequence] for sequence in sequences if sequence in furthest))


async def _ask(seat: Seat, sequences: list[int], events: Events) -> list[TrajectoryGroup]:
    try:
        told: list[TrajectoryGroup] = await seat.worker.call("partial", sequences, timeout=PATIENCE)
    except (RemoteError, WorkerLost, TimeoutError) as error:
        cause = str(error) or f"no answer within {PATIENCE:g} s"
        text = f"{seat.name} does not say what was drawn so far, and a resume would begin its groups anew: {cause}"
        events.add("no-partial", text, "info", worker=seat.name, cause=cause)
        return []
    return told


def _drawn(group: TrajectoryGroup) -> int:
    """Units; of a group with two orders out, the one that is further counts."""
    return sum(trajectory.trained_units for trajectory in group)
