"""Recorders of a run: descriptors and options only.

The pipeline itself keeps `metrics.jsonl`, `evaluations.jsonl` and what was trained on; trackers add to that.
"""

from __future__ import annotations

from attrs import field, frozen

from areal_plugins import TrackerDescriptor

_HERE = "areal_plugins.builtin.trackers"


@frozen(kw_only=True)
class JsonlOptions:
    """Options of `jsonl`."""

    tokens: bool = field(default=True, metadata={"doc": "Keep token ids and their versions beside the text."})


@frozen(kw_only=True)
class TensorboardOptions:
    """Options of `tensorboard`."""

    directory: str = field(
        default="tensorboard", metadata={"doc": "Where event files go; a relative path is inside the run directory."}
    )
    flush_seconds: int = field(default=30, metadata={"doc": "Longest time a figure waits to be written.", "ge": 1})


DESCRIPTORS: tuple[TrackerDescriptor, ...] = (
    TrackerDescriptor(
        name="jsonl",
        summary="Every collected trajectory in full, one JSON object a line, in the run's trajectories/",
        factory=f"{_HERE}.jsonl:JsonlTracker",
        options=JsonlOptions,
    ),
    TrackerDescriptor(
        name="tensorboard",
        summary="Figures of steps and evaluations as TensorBoard scalars",
        factory=f"{_HERE}.tensorboard:TensorboardTracker",
        options=TensorboardOptions,
        requires=("tensorboardX>=2.6",),
    ),
)
