"""Which workers there are, and which devices each of them gets: a function of the spec alone."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from attrs import frozen

from areal_core.spec.model import PoolSpec, Spec


@frozen
class Slot:
    """A worker to be: the numbers of its devices, and the sizes of the axes it is on."""

    name: str
    devices: tuple[int, ...] = ()
    parallel: Mapping[str, int] = {}


def trainers(spec: Spec) -> list[Slot]:
    """One a rank."""
    pool = spec.resources.train
    names = [f"trainer-{rank}" for rank in range(pool.devices)] if pool.devices > 1 else ["trainer"]
    return [Slot(name, (rank,), axes(pool)) for rank, name in enumerate(names)]


def engines(spec: Spec) -> list[Slot]:
    """One a data-parallel replica; a replica's other axes are the engine's own affair."""
    return [engine(spec, index) for index in range(axes(spec.resources.infer)["dp"])]


def engine(spec: Spec, index: int) -> Slot:
    """The n-th of them, counted from 0; further ones than the spec asks for take the devices behind its last."""
    pool = spec.resources.infer
    each, within = split(pool), {axis: size for axis, size in axes(pool).items() if axis != "dp"}
    start = (0 if spec.placement == "colocated" else spec.resources.train.devices) + index * each
    return Slot(f"engine-{index}", tuple(range(start, start + each)), within)


def rollouts(spec: Spec) -> list[Slot]:
    """They need no device."""
    return [Slot(f"rollout-{index}") for index in range(spec.resources.rollout.cpus)]


def axes(pool: PoolSpec) -> dict[str, int]:
    """The size of each axis, `dp` among them: what is left over when others are named."""
    given = dict(pool.axes)
    given.setdefault("dp", max(1, pool.devices // split(pool)))
    return given


def split(pool: PoolSpec) -> int:
    """Devices that share one copy of the model: the product of all axes but `dp`."""
    return prod(max(1, size) for axis, size in pool.axes.items() if axis != "dp")
