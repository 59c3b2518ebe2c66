"""Ray's driver, in a process of its own beside the controller.

Ray takes over its driver's signals, writes to its terminal, and ends it when the cluster is gone. Here that
ends this process, whose output is `logs/ray.log`; the controller goes on, and can save what it has. When
the controller ends, however that be, so does this process, and with it all that Ray runs for it.
"""

from __future__ import annotations

import asyncio
import logging
import re
from itertools import count
from typing import Any

from areal_plugin_ray.records import Ending, Group, Home, Machine, Membership, Order

_NAMES_OF_IT = re.compile(r"\s*(class_name|actor_id|namespace|pid|ip|name|repr|node_id|job_id): ")
END_GRACE = 5.0
"""Seconds that a keeper gets to end its process, before it is ended itself."""

log = logging.getLogger(__name__)


class Broker:
    """A worker's service: everything that is asked of Ray goes through it. Ray is imported on the first call."""

    def __init__(self, _dial: object, _threaded: bool) -> None:
        self._groups: dict[int, Any] = {}
        self._keepers: dict[int, Any] = {}
        self._in_bundle: dict[tuple[int, int], int] = {}
        self._numbers = count()

    async def connect(self, address: str) -> Membership:
        """Become a driver of the cluster."""
        return await asyncio.to_thread(_connect, address)

    async def machines(self) -> list[Machine]:
        """Those that are alive."""
        return await asyncio.to_thread(_machines)

    async def free(self) -> dict[str, float]:
        """What nobody uses now, of the whole cluster."""
        import ray

        found: dict[str, float] = await asyncio.to_thread(ray.available_resources)
        return found

    async def reserve(self, bundles: list[dict[str, float]], strategy: str) -> int:
        """Ask for a placement group; its number here."""
        from ray.util.placement_group import placement_group

        number = next(self._numbers)
        self._groups[number] = placement_group(bundles, strategy=strategy)
        return number

    async def group(self, number: int) -> Group:
        """How the placement group does."""
        from ray.util.placement_group import placement_group_table

        table = await asyncio.to_thread(placement_group_table, self._groups[number])
        nodes = table["bundles_to_node_id"]
        return Group(table["state"], table["stats"]["scheduling_state"], [nodes[index] for index in sorted(nodes)])

    async def remove(self, number: int) -> None:
        """Give a placement group back."""
        from ray.util.placement_group import remove_placement_group

        await asyncio.to_thread(remove_placement_group, self._groups.pop(number))

    async def keep(self, group: int, index: int, folder: str) -> Home:
        """Start a keeper in a bundle of a group, on a machine that sees `folder`.

        It is the only one there: an earlier one is that of a caller who was gone before it heard of it.
        """
        from ray.exceptions import RayError

        self._dismiss(self._in_bundle.get((group, index), -1))
        number, handle = next(self._numbers), _keeper(self._groups[group], index)
        self._in_bundle[group, index] = number
        self._keepers[number] = handle
        try:
            node = await handle.node.remote()
            addresses = {machine.node: machine.address for machine in await self.machines()}
            sees = await handle.sees.remote(folder)
        except RayError as error:
            self._dismiss(number)
            return Home(problem=cause(error))
        except asyncio.CancelledError:
            self._dismiss(number)
            raise
        address = addresses.get(node, "")
        if address and sees:
            return Home(number, node, address)
        self._dismiss(number)
        return Home(node=node, address=address, problem="" if address else f"node {node} is gone again")

    async def dismiss(self, keeper: int) -> None:
        """End a keeper."""
        self._dismiss(keeper)

    async def port(self, keeper: int, address: str) -> int:
        """A free port of the keeper's machine."""
        found: int = await self._keepers[keeper].port.remote(address)
        return found

    async def run(self, keeper: int, order: Order) -> Ending:
        """Start a worker's process and return once it has ended, or its machine is lost."""
        from ray.exceptions import RayError

        try:
            ending: Ending = await self._keepers[keeper].live.remote(order)
        except RayError as error:
            ending = Ending(f"on {order.machine}: {cause(error)}")
        finally:
            self._dismiss(keeper)
        return ending

    async def end(self, keeper: int, kill: bool) -> None:
        """End a worker's process; where the keeper cannot, the keeper."""
        from ray.exceptions import RayError

        if (handle := self._keepers.get(keeper)) is None:
            return
        try:
            async with asyncio.timeout(END_GRACE):
                await handle.end.remote(kill)
        except (RayError, TimeoutError) as error:
            log.warning("a keeper does not answer: %s", error)
            self._dismiss(keeper)

    async def close(self) -> None:
        """Give everything back."""
        await asyncio.to_thread(_leave, list(self._groups.values()))

    def _dismiss(self, keeper: int) -> None:
        import ray

        if (handle := self._keepers.pop(keeper, None)) is not None:
            ray.kill(handle)


def cause(error: Exception) -> str:
    """What Ray says of a lost actor, in one line, without its names for it."""
    from ray.exceptions import ActorUnavailableError

    if isinstance(error, ActorUnavailableError):
        return "Ray does not reach it any more"
    lines = [line for line in str(error).splitlines() if line.strip() and not _NAMES_OF_IT.match(line)]
    because = [line for line in lines if "died unexpectedly" not in line and "never ran" not in line]
    return " ".join(line.strip() for line in because or lines)


def _connect(address: str) -> Membership:
    import ray

    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.WARNING)
    except (ConnectionError, RuntimeError, ValueError) as error:
        return Membership(problem=str(error))
    here = ray.get_runtime_context().get_node_id()
    addresses = {machine.node: machine.address for machine in _machines()}
    return Membership(addresses[here])


def _machines() -> list[Machine]:
    import ray

    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call] # Ray's own
    return [Machine(n["NodeID"], n["NodeManagerAddress"], n["Resources"]) for n in nodes if n["Alive"]]


def _keeper(group: Any, index: int) -> Any:
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    from areal_plugin_ray.keeper import Keeper

    needs = dict(group.bundle_specs[index])
    options = {
        "num_cpus": needs.pop("CPU", 0),
        "num_gpus": needs.pop("GPU", 0),
        "resources": needs,
        # An actor that Ray starts again knows nothing of its worker: the supervisor starts a new one.
        "max_restarts": 0,
        "scheduling_strategy": PlacementGroupSchedulingStrategy(group, index),
    }
    return ray.remote(Keeper).options(**options).remote()


def _leave(groups: list[Any]) -> None:
    import ray
    from ray.util.placement_group import remove_placement_group

    if ray.is_initialized():
        for group in groups:
            remove_placement_group(group)
        ray.shutdown()
