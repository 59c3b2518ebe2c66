"""The executor `ray`: workers on the machines of a Ray cluster."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

from areal_plugins import ExecutorCapabilities, ExecutorDescriptor, hookimpl

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]


def _doc(text: str, default: Any, **limits: Any) -> Any:
    return field(default=default, metadata={"doc": text, **limits})


@frozen(kw_only=True)
class RayOptions:
    """Which cluster, where in it, and how patient the executor is."""

    address: str = _doc("The cluster's head as `host:port`; auto: the cluster that this machine is in.", "auto")
    strategy: Strategy = _doc("How workers are placed: on few machines, on many; STRICT: or not at all.", "PACK")
    train_resource: str | None = _doc("Resource of Ray that each device of resources.train takes besides.", None)
    infer_resource: str | None = _doc("Resource of Ray that each device of resources.infer takes besides.", None)
    rollout_resource: str | None = _doc("Resource of Ray that each rollout worker takes besides.", None)
    place_timeout: float = _doc("Seconds to wait for room in a busy cluster.", 600.0, gt=0)
    start_timeout: float = _doc("Seconds a worker may take to answer once it has a machine.", 120.0, gt=0)
    grace: float = _doc("Seconds a worker may take to end.", 10.0, ge=0)


@hookimpl
def areal_executors() -> tuple[ExecutorDescriptor, ...]:
    """The one executor."""
    return (
        ExecutorDescriptor(
            name="ray",
            summary="every worker a process on a machine of a Ray cluster",
            factory="areal_plugin_ray.executor:make",
            options=RayOptions,
            capabilities=ExecutorCapabilities(nodes=True),
            requires=("ray>=2.60",),
        ),
    )
