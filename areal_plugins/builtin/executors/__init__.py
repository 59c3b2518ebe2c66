"""Ways to start workers on one machine."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from areal_plugins import ExecutorCapabilities, ExecutorDescriptor


@frozen
class LocalOptions:
    """How processes reach each other, and how patient their executor is."""

    link: Literal["auto", "unix", "tcp"] = field(
        default="auto",
        metadata={"doc": "Unix sockets in a private folder, or TCP on the loopback device; `auto`: Unix if it can be."},
    )
    preload: bool = field(
        default=True,
        metadata={"doc": "Fork workers from one process that has imported their modules, where that is safe (Linux)."},
    )
    pin: bool = field(
        default=True,
        metadata={
            "doc": "Keep engines and trainers of one thread to a core of their own, where there are enough (Linux)."
        },
    )
    start_timeout: float = field(default=120.0, metadata={"doc": "Seconds a worker may take to answer.", "gt": 0})
    grace: float = field(default=10.0, metadata={"doc": "Seconds a worker may take to end.", "ge": 0})


DESCRIPTORS: tuple[ExecutorDescriptor, ...] = (
    ExecutorDescriptor(
        name="local",
        summary="every worker a process on this machine",
        factory="areal_plugins.builtin.executors.local:make",
        options=LocalOptions,
    ),
    ExecutorDescriptor(
        name="inline",
        summary="every worker in this process, on one event loop: deterministic, for debugging and tests",
        factory="areal_plugins.builtin.executors.inline:make",
        capabilities=ExecutorCapabilities(processes=False),
    ),
)
