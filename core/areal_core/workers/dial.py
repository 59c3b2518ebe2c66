"""Reaching a worker by its address."""

from __future__ import annotations

from areal_core.errors import WorkerLost
from areal_core.workers.address import connect
from areal_core.workers.hello import Card, Refused, greet
from areal_core.workers.link import Link
from areal_core.workers.service import methods_of, service_class


async def dial(address: str, key: bytes, card: Card) -> Link:
    """A link to the worker that listens at `address`; `card` says who calls.

    Raises:
        WorkerLost: nobody answers there, or not with this key and release.

    """
    try:
        wire = await connect(address)
        theirs = await greet(wire, "dialer", key, card)
    except (OSError, Refused) as error:
        raise WorkerLost(address, f"cannot be reached: {error}") from error
    return Link(wire, theirs.name, methods_of(service_class(theirs.role)) if theirs.role else {})
