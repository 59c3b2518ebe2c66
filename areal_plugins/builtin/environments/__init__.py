"""Sources of tasks that need no third-party library: descriptors only."""

from __future__ import annotations

from areal_plugins import EnvironmentCapabilities, EnvironmentDescriptor
from areal_plugins.builtin.environments import check

_HERE = "areal_plugins.builtin.environments"

DESCRIPTORS: tuple[EnvironmentDescriptor, ...] = (
    EnvironmentDescriptor(
        name="jsonl",
        summary="Questions from a JSON Lines file, judged by a reward",
        factory=f"{_HERE}.jsonl:make",
        options=f"{_HERE}.options:JsonlOptions",
        capabilities=EnvironmentCapabilities(demonstrations=True),
        check=check.held_out,
    ),
    EnvironmentDescriptor(
        name="gsm8k",
        summary="Grade-school mathematics from the data set's JSON Lines files (arXiv 2110.14168)",
        factory=f"{_HERE}.gsm8k:make",
        options=f"{_HERE}.options:Gsm8kOptions",
        capabilities=EnvironmentCapabilities(scores=True, demonstrations=True),
        check=check.gsm8k,
    ),
)
