"""What workers need in Ray's words, and whether a cluster can ever give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from areal_plugin_ray import RayOptions
from areal_plugin_ray.records import Machine
from areal_plugins.protocols import WorkerSpec

Bundle = dict[str, float]

_NAMES = {"cpu": "CPU", "cuda": "GPU", "npu": "NPU"}
"""Ray's resources, by torch's devices; of another one it is the name in capitals."""

_EXTRA = 1e-6


def bundle(spec: WorkerSpec, options: RayOptions) -> Bundle:
    """The resources of one worker: cores, devices, and the pool's own resource, one a device."""
    needs = {_NAMES.get(name, name.upper()): amount for name, amount in spec.resources.items()}
    pools = {"trainer": options.train_resource, "engine": options.infer_resource, "rollout": options.rollout_resource}
    if pool := pools.get(spec.role):
        needs[pool] = float(max(1, len(spec.place.devices)))
    return needs or {"CPU": 1.0}


def lacking(workers: Mapping[str, Bundle], strategy: str, machines: Sequence[Machine]) -> list[str]:
    """Why these machines can never hold these workers, one reason a line; empty: nothing is known against it."""
    if not machines:
        return ["the cluster has no machine"]
    alone = [f"{name} needs {amounts(needs)}, which no machine has" for name, needs in workers.items() if not any(
        _holds(machine.total, needs) for machine in machines)]  # fmt: skip
    return _in_all(workers.values(), machines) or alone or _by_strategy(workers, strategy, machines)


def fits(bundles: Iterable[Bundle], machines: Sequence[Machine]) -> bool:
    """Whether a way to lay them out was found on empty machines: the largest first, each where it fits.

    False does not prove that there is none.
    """
    left = [dict(machine.total) for machine in machines]
    for needs in sorted(bundles, key=lambda needs: -sum(needs.values())):
        place = next((free for free in left if _holds(free, needs)), None)
        if place is None:
            return False
        for name, amount in needs.items():
            place[name] -= amount
    return True


def table(machines: Sequence[Machine]) -> str:
    """What each machine has: one line a machine, one column a resource."""
    names = sorted({name for machine in machines for name in machine.total if _counts(name)})
    rows = [["machine", *names]]
    rows += [[m.address, *(f"{m.total.get(name, 0):g}" for name in names)] for m in machines]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  " + "  ".join(_cells(row, widths)) for row in rows)


def amounts(needs: Mapping[str, float]) -> str:
    """`4 CPU, 1 GPU`."""
    return ", ".join(f"{amount:g} {name}" for name, amount in needs.items() if _counts(name)) or "nothing"


def total(bundles: Iterable[Bundle]) -> Bundle:
    """Of each resource, what all need together."""
    summed: Counter[str] = Counter()
    for needs in bundles:
        summed.update(needs)
    return dict(summed)


def _in_all(bundles: Iterable[Bundle], machines: Sequence[Machine]) -> list[str]:
    there = total(machine.total for machine in machines)
    return [
        f"{amount:g} {name} are needed, and the cluster has {there.get(name, 0):g}"
        for name, amount in total(bundles).items()
        if amount > there.get(name, 0) + _EXTRA
    ]


def _by_strategy(workers: Mapping[str, Bundle], strategy: str, machines: Sequence[Machine]) -> list[str]:
    together = total(workers.values())
    if strategy == "STRICT_PACK" and not any(_holds(machine.total, together) for machine in machines):
        return [f"STRICT_PACK wants all of {amounts(together)} on one machine"]
    if strategy == "STRICT_SPREAD" and len(workers) > len(machines):
        return [f"STRICT_SPREAD wants a machine for each of {len(workers)} workers, and there are {len(machines)}"]
    return []


def _holds(there: Mapping[str, float], needs: Bundle) -> bool:
    return all(there.get(name, 0) + _EXTRA >= amount for name, amount in needs.items())


def _counts(name: str) -> bool:
    """Whether people count it: Ray also has resources that name a machine, and memory."""
    return ":" not in name and name not in ("memory", "object_store_memory")


def _cells(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    return [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
