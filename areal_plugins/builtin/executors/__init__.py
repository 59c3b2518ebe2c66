"""Ways to start workers on one machine."""

from __future__ import annotations

from areal_plugins import ExecutorCapabilities, ExecutorDescriptor

DESCRIPTORS: tuple[ExecutorDescriptor, ...] = (
    ExecutorDescriptor(
        name="inline",
        summary="every worker in this process, on one event loop: deterministic, for debugging and tests",
        factory="areal_plugins.builtin.executors.inline:make",
        capabilities=ExecutorCapabilities(processes=False),
    ),
)
