"""What flows through the pipeline; see `areal_core.data`."""

from __future__ import annotations

from areal_core.data import (
    NO_VERSION,
    Batch,
    Completion,
    EngineStats,
    Finish,
    GenerateRequest,
    Message,
    Reply,
    Sample,
    Sampling,
    Score,
    Task,
    TaskRef,
    TensorInfo,
    Trajectory,
    TrajectoryGroup,
    WeightOffer,
    WeightVersion,
)

__all__ = [
    "NO_VERSION",
    "Batch",
    "Completion",
    "EngineStats",
    "Finish",
    "GenerateRequest",
    "Message",
    "Reply",
    "Sample",
    "Sampling",
    "Score",
    "Task",
    "TaskRef",
    "TensorInfo",
    "Trajectory",
    "TrajectoryGroup",
    "WeightOffer",
    "WeightVersion",
]
